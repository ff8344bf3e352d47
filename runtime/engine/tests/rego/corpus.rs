//! Compares whole policies with `opa eval`: each file of `corpus/` is a package with a rule `result`. All of them are
//! built into one bundle, whose policy saves their results and its input; then `opa` evaluates them on the same input.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use qosm_engine::{Cause, Interface, Limits};
use qosm_model::unit::{Bytes, Micros};
use qosm_rego::Value;

use crate::node::{ENGINE, Tried, batch, columns, everything, load, web};
use crate::opa;

const DATA: &str = include_str!("corpus/data.json");

/// Names of the files without their extension.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".rego").map(str::to_owned)).collect();
    names.sort();
    names
}

/// The policy that saves the results of all cases.
fn driver(names: &[String]) -> String {
    let grants: Vec<_> = Interface::ALL.into_iter().map(Interface::as_str).collect();
    let mut rules = "settings contains {\"state\": {\"input\": input, \"results\": results}}\n\n".to_owned();
    for name in names {
        writeln!(rules, "results[\"{name}\"] := data.corpus.{name}.result").unwrap();
    }
    opa::text(&grants.join(", "), &rules)
}

fn results(document: &Value) -> BTreeMap<String, Value> {
    let pairs = document.as_object().unwrap().iter();
    pairs.map(|(name, value)| (name.as_str().unwrap().to_owned(), value.clone())).collect()
}

#[test]
fn policies_come_to_what_they_come_to_in_opa() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rego/corpus"));
    let names = names(folder);
    assert!(names.len() >= 60, "{} cases", names.len());
    let texts: Vec<(String, String)> = names
        .iter()
        .map(|name| (format!("{name}.rego"), std::fs::read_to_string(folder.join(format!("{name}.rego"))).unwrap()))
        .collect();
    for (file, text) in &texts {
        let package = format!("package corpus.{}\n", file.trim_end_matches(".rego"));
        assert!(text.contains(&package), "{file} should begin with `{}`", package.trim());
    }
    let policy = driver(&names);
    let mut files = vec![("policy.rego", policy.as_str()), ("data.json", DATA)];
    files.extend(texts.iter().map(|(file, text)| (file.as_str(), text.as_str())));
    let bundle = opa::build(&files);

    let limits = Limits {
        memory: Bytes(256 << 20),
        evaluation: Duration::from_secs(20),
        state: Bytes(8 << 20),
        hostcall: Bytes(16 << 20),
        ..Limits::default()
    };
    let module = load(&bundle).unwrap_or_else(|error| panic!("{}", crate::node::chain(&error)));
    let instance = ENGINE.instantiate(&module, "corpus", &everything(), &limits, Vec::new()).unwrap();
    let mut tried = Tried { instance };
    tried.instance.configure(r#"{"threshold": 80, "names": ["web", "db"], "big": 12345678901234567890}"#).unwrap();
    tried.tell(&[web(), batch()]).unwrap();
    let staged = tried.instance.evaluate(Micros(1_500_000), Cause::PodsChanged, &columns());
    let staged = staged.unwrap_or_else(|error| panic!("{error}; {:?}", tried.instance.take_log()));
    let saved = Value::from_json(std::str::from_utf8(&staged.state.unwrap()).unwrap()).unwrap();

    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("input.json"), saved.get("input").unwrap().to_json()).unwrap();
    for (file, text) in &files {
        std::fs::write(here.path().join(file), text).unwrap();
    }
    let mut arguments = vec!["eval", "--format", "raw", "--input", "input.json"];
    for (file, _) in &files {
        arguments.extend(["--data", file]);
    }
    arguments.push("data.qosm.results");
    let expected = results(&Value::from_json(opa::run(&arguments, here.path()).trim()).unwrap());
    let found = results(saved.get("results").unwrap());

    let mut differences = String::new();
    for name in &names {
        let (found, expected) = (found.get(name), expected.get(name));
        if found != expected || found.is_none() {
            let show = |value: Option<&Value>| value.map_or_else(|| "undefined".to_owned(), Value::to_json);
            writeln!(differences, "{name}:\n  here {}\n  opa  {}", show(found), show(expected)).unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}\nfailed here: {:#?}", staged.log);
}
