//! Cases from public bug reports and published configurations: each a folder below `tests/field` with its input, the right
//! values, and the source. CONTRIBUTING.md says how to add one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::qosm::{Run, bare, run};

/// `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The source of the case, and what happened.
    source: String,
    /// The arguments of qosm: `plan …` or `replay …`. Files are beside the case.
    run: Vec<String>,
    /// The line of a replay from which `at_most`, `at_least` and `unset` count; line 0 is the initial state.
    #[serde(default)]
    from: usize,
    /// Expected values at the end, by `NAMESPACE/POD[/CONTAINER] KNOB` or `tier TIER KNOB`.
    #[serde(default)]
    values: BTreeMap<String, Value>,
    /// Upper bounds of values.
    #[serde(default)]
    at_most: BTreeMap<String, i64>,
    /// Lower bounds of values.
    #[serde(default)]
    at_least: BTreeMap<String, i64>,
    /// Knobs that must not be set.
    #[serde(default)]
    unset: Vec<String>,
    /// Texts that the output must contain.
    #[serde(default)]
    says: Vec<String>,
    /// Texts that the output must not contain.
    #[serde(default)]
    silent: Vec<String>,
    /// The expected exit code.
    #[serde(default)]
    exit: i32,
}

/// A decision: line, subject and knob, value.
type Decided = (usize, String, Value);

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/field");
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn execute(folder: &Path, case: &Case) -> Run {
    let is_file = |word: &str| folder.join(word).exists();
    let mut args: Vec<String> = case
        .run
        .iter()
        .map(|word| if is_file(word) { folder.join(word).display().to_string() } else { word.clone() })
        .collect();
    if case.run.first().is_some_and(|verb| verb == "plan") {
        args.extend(["-o".to_owned(), "json".to_owned()]);
    }
    run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "")
}

/// All decisions, line by line; empty if the plan failed.
fn decisions(verb: &str, run: &Run) -> Vec<Decided> {
    let rows_of = |line: usize, rows: &Value| -> Vec<Decided> {
        rows.as_array().into_iter().flatten().map(|row| (line, subject(row), row["value"].clone())).collect()
    };
    if verb == "plan" {
        return if run.stdout.is_empty() { Vec::new() } else { rows_of(0, &run.json()["decisions"]) };
    }
    run.lines().iter().enumerate().flat_map(|(line, document)| rows_of(line, &document["decisions"])).collect()
}

fn subject(row: &Value) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or_default();
    let subject = match row["level"].as_str() {
        Some("tier") => format!("tier {}", text("tier")),
        Some("pod") => format!("{}/{}", text("namespace"), text("pod")),
        _ => format!("{}/{}/{}", text("namespace"), text("pod"), text("container")),
    };
    format!("{subject} {}", text("knob"))
}

/// A value as a number; no limit counts as the largest number.
fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(i64::MAX)
}

fn faults(case: &Case, run: &Run) -> Vec<String> {
    let mut faults = Vec::new();
    if run.code != case.exit {
        faults.push(format!("it ended with {}, not {}", run.code, case.exit));
    }
    let said = format!("{}{}", run.stdout, run.stderr);
    faults.extend(
        case.says.iter().filter(|words| !said.contains(words.as_str())).map(|words| format!("not said: {words}")),
    );
    faults
        .extend(case.silent.iter().filter(|words| said.contains(words.as_str())).map(|words| format!("said: {words}")));
    let all = decisions(case.run.first().map_or("", String::as_str), run);
    for (subject, wanted) in &case.values {
        let last = all.iter().rfind(|(_, of, _)| of == subject).map(|(.., value)| value);
        if last.map(bare) != Some(bare(wanted)) {
            faults.push(format!("{subject} is {}, not {wanted}", last.map_or_else(|| "not set".to_owned(), bare)));
        }
    }
    let counted = || all.iter().filter(|(line, ..)| *line >= case.from);
    for (line, of, value) in counted() {
        if case.at_most.get(of).is_some_and(|most| number(value) > *most)
            || case.at_least.get(of).is_some_and(|least| number(value) < *least)
            || case.unset.contains(of)
        {
            faults.push(format!("line {line}: {of} is set to {}", bare(value)));
        }
    }
    faults
}

#[test]
fn what_went_wrong_for_others_goes_right() {
    let mut failed = Vec::new();
    for folder in folders() {
        let text = std::fs::read_to_string(folder.join("case.yaml")).unwrap();
        let case: Case = serde_saphyr::from_str(&text).unwrap_or_else(|error| unreachable!("{folder:?}: {error}"));
        assert!(case.source.starts_with("https://"), "{folder:?}: its source is no address");
        let ran = execute(&folder, &case);
        let faults = faults(&case, &ran);
        if !faults.is_empty() {
            failed.push(format!("{}\n{}\n{ran:#?}", folder.display(), faults.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn a_case_fails_where_a_value_is_another() {
    let folder = &folders()[0];
    let text = std::fs::read_to_string(folder.join("case.yaml")).unwrap();
    let case: Case = serde_saphyr::from_str(&text).unwrap();
    let ran = execute(folder, &case);
    let wrong = Case {
        values: BTreeMap::from([("shop/none/app cpu.quota".to_owned(), 1.into())]),
        says: vec!["never said".to_owned()],
        exit: 77,
        ..case
    };
    assert_eq!(faults(&wrong, &ran).len(), 3, "{:#?}", faults(&wrong, &ran));
}
