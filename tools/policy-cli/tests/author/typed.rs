//! The verbs as users type them, through `qosm`, which knows their names and passes on all other arguments.

use crate::programs::{run, run_qosm};

/// The verbs that a help text lists, each with the beginning of its description.
fn verbs(help: &str) -> Vec<(String, String)> {
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let verb = |line: &str| {
        let (name, about) = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?.split_once(' ')?;
        // The description may wrap, and where depends on the longest name, so only its beginning is compared.
        Some((name.to_owned(), about.trim_start().chars().take(40).collect()))
    };
    lines.filter_map(verb).filter(|(name, _)| name != "help").collect()
}

#[test]
fn qosm_lists_every_verb_of_this_program_and_what_it_is_for() {
    let (own, typed) =
        (run(&["--help"], "").says_nothing_else(), run_qosm(&["policy", "--help"], "").says_nothing_else());
    let typed = verbs(&typed.stdout);
    let own: Vec<_> = verbs(&own.stdout)
        .into_iter()
        .filter(|(name, _)| !["demo", "resctrl", "completions"].contains(&name.as_str()))
        .collect();
    assert_eq!(own.len(), 10, "{own:#?}");
    for verb in own {
        assert!(typed.contains(&verb), "{verb:?} is not in {typed:#?}");
    }
}

#[test]
fn every_verb_explains_itself_as_it_was_typed() {
    for group in ["policy", "demo", "resctrl"] {
        for (verb, _) in verbs(&run_qosm(&[group, "--help"], "").says_nothing_else().stdout) {
            for typed in [[group, &verb, "--help"], ["help", group, &verb], [group, "help", &verb]] {
                let help = run_qosm(&typed, "").says_nothing_else().stdout;
                assert!(help.contains(&format!("Usage: qosm {group} {verb}")), "{typed:?}: {help}");
                // These two have no example beyond their arguments.
                let has_example = help.contains("Example") || ["retry", "help"].contains(&verb.as_str());
                assert!(has_example, "{typed:?}: {help}");
            }
        }
    }
}

#[test]
fn it_can_be_called_by_its_own_name() {
    let help = run(&["lint", "--help"], "").says_nothing_else().stdout;
    assert!(help.contains("Usage: qosm-policy lint"), "{help}");
    run(&["cobble"], "").says(2, &["cobble"]);
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&["completions", shell], "").says_nothing_else().stdout;
        assert!(completions.contains("toolchain") && completions.contains("annotate"), "{shell}: {completions}");
    }
}
