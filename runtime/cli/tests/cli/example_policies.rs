//! The examples that are policies, or pods for the default ones: their READMEs show the real output.

use std::path::Path;

use crate::qosm::{QOSM, Run, repository, run};

/// The module of an example; it is built with the default modules.
fn example(name: &str) -> String {
    let target = Path::new(QOSM).ancestors().nth(2).unwrap();
    let file = target.join("example-policies").join(format!("{name}.wasm"));
    assert!(file.is_file(), "{} is missing: run `make build`, or `cargo xtask modules`, first", file.display());
    format!("{name}={}", file.display())
}

/// The blocks of plain text in a README.
fn shown(readme: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository(readme)).unwrap();
    let blocks = text.split("```text\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn replayed(recording: &str, more: &[&str]) -> Run {
    run(&[&["replay", "-o", "table", &repository(recording)], more].concat(), "")
}

/// Checks that the output is exactly what the README shows.
#[track_caller]
fn says(ran: &Run, shown: &str) {
    assert_eq!(format!("{}{}", ran.stdout, ran.stderr), shown, "{ran:#?}");
}

#[test]
fn the_start_up_boost_is_as_its_readme_says() {
    let flags = ["--policy", &example("startup-boost"), "--grant", "startup-boost=node,cpu-stat,cpu-bandwidth"];
    let played = replayed("examples/startup-boost/recording.jsonl", &flags);
    assert_eq!(played.code, 0, "{played:#?}");
    says(&played, &shown("examples/startup-boost/README.md")[0]);
}

#[test]
fn a_protocol_of_ones_own_is_as_its_readme_says() {
    let grants = "service-class=cpu-stat,cpu-bandwidth,memory-protection";
    let flags = ["--policy", &example("service-class"), "--grant", grants];
    let shown = shown("examples/third-party-annotation/README.md");
    let node = repository("examples/third-party-annotation/node.yaml");
    let planned = run(&[&["plan", "--facts", &node], &flags[..]].concat(), "");
    assert_eq!(planned.code, 0, "{planned:#?}");
    says(&planned, &shown[0]);
    says(&replayed("examples/third-party-annotation/recording.jsonl", &flags), &shown[1]);
}

#[test]
fn the_pods_of_koordinators_documentation_are_served_as_the_readme_says() {
    let shown = shown("examples/koordinator/README.md");
    let node = repository("examples/koordinator/node.yaml");
    let pods = repository("examples/koordinator/pods");
    let planned = run(&["plan", "--facts", &node, "--pods", &pods], "");
    assert_eq!(planned.code, 0, "{planned:#?}");
    says(&planned, &shown[0]);
    let played = replayed("examples/koordinator/node.jsonl", &[]);
    assert_eq!(played.code, 0, "{played:#?}");
    says(&played, &shown[1]);
}

#[test]
fn the_template_plans_and_replays() {
    let flags = ["--policy", &example("my-policy"), "--grant", "my-policy=memory-protection"];
    let node = repository("sdk/templates/rust/recordings/node.yaml");
    let planned = run(&[&["plan", "-o", "json", "--facts", &node], &flags[..]].concat(), "");
    assert_eq!(planned.says_nothing_else().rows(), ["container default/web/app memory.high 805306368"]);
    let played = replayed("sdk/templates/rust/recordings/node.jsonl", &flags);
    assert_eq!(played.code, 0, "{played:#?}");
    for step in ["default/web/app memory.high max -> 858992640", "858992640 -> max", "default/report/job memory.high"] {
        assert!(played.stdout.contains(step), "{step}: {}", played.stdout);
    }
}
