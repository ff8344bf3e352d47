//! Checks that each call in `corpus/` has the same result as in `opa eval`: a value, undefined, or an error.
//!
//! A case is a call in Rego's syntax. The expected results come from OPA, for all cases of a file in one run. Each case
//! is a rule whose arguments pass through a function, so that OPA's compiler does not see their types.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use qosm_rego::{BuiltinError, Context, Value, builtin};
use serde::Deserialize;

use crate::opa::opa;

/// Text of a module before the first case.
const HEADER: &str = "package corpus\n\nopaque(x) := x\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    call: String,
    /// Index of the only element of the result that is compared.
    only: Option<usize>,
    /// Why this crate's result differs.
    differs: Option<String>,
    /// This crate's result in that case.
    ours: Option<String>,
}

/// The result of a call, as text to compare.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// The type, and the value in JSON.
    Value(String),
    Undefined,
    /// An error; OPA's message is not compared.
    Error,
}

macro_rules! files {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_file_of_the_corpus_is_run() {
            let mut there: Vec<String> = fs::read_dir(corpus())
                .unwrap()
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            there.sort();
            assert_eq!(there, [$(stringify!($name)),*]);
        }
    };
}

files! { documents encoding identifiers net numbers objects patch regex sprintf strings time }

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn check(file: &str) {
    let text = fs::read_to_string(corpus().join(format!("{file}.yaml"))).unwrap();
    let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
    let theirs = theirs(&cases);
    let mut complaints = String::new();
    for (case, (theirs, reason)) in cases.iter().zip(theirs) {
        let ours = ours(case);
        let (ours, why) = &ours;
        match &case.differs {
            None if *ours == theirs => {}
            None => {
                let _ = writeln!(complaints, "{}\n  opa:  {theirs:?} {reason}\n  ours: {ours:?} {why}", case.call);
            }
            Some(why) if *ours == theirs => {
                let _ = writeln!(complaints, "{}\n  does not differ any more: {why}", case.call);
            }
            Some(_) => {
                let is = match ours {
                    Given::Value(value) => value.as_str(),
                    Given::Undefined => "undefined",
                    Given::Error => "error",
                };
                if case.ours.as_deref() != Some(is) {
                    let _ = writeln!(complaints, "{}\n  ours: {is}, not {:?}", case.call, case.ours);
                }
            }
        }
    }
    let count = complaints.lines().filter(|line| !line.starts_with(' ')).count();
    assert!(complaints.is_empty(), "{count} of {} cases of {file}.yaml:\n{complaints}", cases.len());
}

/// The result of this crate's function, and the reason of an error.
fn ours(case: &Case) -> (Given, String) {
    let (name, arguments) = parts(&case.call);
    let Value::Array(arguments) = Value::parse(&format!("[{arguments}]")).unwrap() else { unreachable!() };
    let builtin = builtin(name).unwrap_or_else(|| panic!("{name} is not answered"));
    assert_eq!(builtin.arity(), arguments.len(), "{}", case.call);
    match builtin.call(&arguments, &Context::new(0)) {
        Ok(Some(value)) => (Given::Value(shown(value.type_name(), &value, case.only)), String::new()),
        Ok(None) => (Given::Undefined, String::new()),
        Err(error) => {
            assert!(matches!(error, BuiltinError::Failed { builtin, .. } if builtin == name), "{error}");
            (Given::Error, error.to_string())
        }
    }
}

/// The type of a value, and the value in JSON.
fn shown(type_name: &str, value: &Value, only: Option<usize>) -> String {
    let value = match (only, value) {
        (Some(index), Value::Array(elements)) => elements.get(index).unwrap_or(value),
        _ => value,
    };
    format!("{type_name} {}", Value::from_json(&value.to_json()).unwrap())
}

/// Name and arguments of a call.
fn parts(call: &str) -> (&str, &str) {
    let (name, rest) = call.split_once('(').unwrap();
    (name, rest.strip_suffix(')').unwrap())
}

/// OPA's result for each case, and the reasons of errors.
fn theirs(cases: &[Case]) -> Vec<(Given, String)> {
    let mut module = String::from(HEADER);
    for (index, case) in cases.iter().enumerate() {
        let (name, arguments) = parts(&case.call);
        let Value::Array(parsed) = Value::parse(&format!("[{arguments}]")).unwrap() else { unreachable!() };
        let places: Vec<String> = (0..parsed.len()).map(|place| format!("a[{place}]")).collect();
        let places = places.join(", ");
        let _ = writeln!(
            module,
            "case_{index} := [type_name(v), v] if {{ a := opaque([{arguments}]); v := {name}({places}) }}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("corpus.rego");
    fs::write(&file, module).unwrap();
    let run = opa()
        .args(["eval", "--format", "json", "--show-builtin-errors", "--data"])
        .arg(&file)
        .arg("data.corpus")
        .output()
        .unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    let printed = Value::from_json(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));

    let errors = printed.get("errors").and_then(Value::as_array).unwrap_or_default();
    let errors: BTreeMap<i64, String> = errors
        .iter()
        .map(|error| {
            let row = error.get("location").and_then(|at| at.get("row")).and_then(Value::as_number);
            let row = row.and_then(|row| row.as_i64()).unwrap_or_else(|| panic!("opa: {error}"));
            (row, error.get("message").map(Value::to_string).unwrap_or_default())
        })
        .collect();
    let result = printed.get("result").and_then(Value::as_array).and_then(|results| results.first());
    let expression = result.and_then(|result| result.get("expressions")).and_then(Value::as_array);
    let values = expression.and_then(|all| all.first()).and_then(|one| one.get("value"));
    let values = values.unwrap_or_else(|| panic!("opa gave no result: {printed}"));

    let first = i64::try_from(HEADER.lines().count()).unwrap() + 1;
    (first..)
        .zip(cases)
        .enumerate()
        .map(|(index, (row, case))| match (values.get(&format!("case_{index}")), errors.get(&row)) {
            (Some(Value::Array(pair)), _) => {
                (Given::Value(shown(pair[0].as_str().unwrap(), &pair[1], case.only)), String::new())
            }
            (_, Some(reason)) => (Given::Error, reason.clone()),
            (_, None) => (Given::Undefined, String::new()),
        })
        .collect()
}
