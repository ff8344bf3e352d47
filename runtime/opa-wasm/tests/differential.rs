//! Runs OPA's own test cases in `opa-wasm`, as far as it can, and in the engine's runner: both give the same results,
//! except for the cases in `differences.txt`, which may only become fewer.
//!
//! Only cases whose modules import functions from the host are run: functions that are compiled into a module are the
//! same for both.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use qosm_engine::{Engine, Limits, OpaModule};
use qosm_opa_wasm::OpaWasm;
use serde::Deserialize;
use serde_json::Value as Json;

/// Folders of cases about families of functions of which `opa-wasm` provides at least one.
const FOLDERS: [&str; 16] = [
    "v1/base64urlbuiltins",
    "v1/cryptohmacmd5",
    "v1/cryptohmacsha1",
    "v1/cryptohmacsha256",
    "v1/cryptohmacsha512",
    "v1/cryptomd5",
    "v1/cryptosha1",
    "v1/cryptosha256",
    "v1/hexbuiltins",
    "v1/jsonpatch",
    "v1/semvercompare",
    "v1/semverisvalid",
    "v1/sprintf",
    "v1/time",
    "v1/units",
    "v1/urlbuiltins",
];

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    module: String,
    #[serde(default)]
    excused: String,
    #[serde(default)]
    input: String,
    #[serde(default)]
    data: String,
}

/// The result of comparing the two hosts.
enum Outcome {
    Same,
    /// `opa-wasm` does not start the module, or its evaluation fails.
    NotRun(String),
    /// The engine refuses the module by design.
    NotHere,
    Differs(String),
}

fn folder() -> PathBuf {
    let named = std::env::var_os("QOSM_OPA_CASES").map(PathBuf::from);
    let home = std::env::var_os("HOME").unwrap_or_default();
    let folder = named.unwrap_or_else(|| Path::new(&home).join(".cache/qosm/opa-cases-1.22.0-1"));
    assert!(
        folder.join("cases.json").is_file(),
        "{} holds no cases.json: run `cargo xtask setup --for rego`",
        folder.display()
    );
    folder
}

/// JSON with the elements of arrays sorted, since the order of a set's elements is not defined.
fn in_order(json: &Json) -> Json {
    match json {
        Json::Array(elements) => {
            let mut elements: Vec<Json> = elements.iter().map(in_order).collect();
            elements.sort_by_key(Json::to_string);
            Json::Array(elements)
        }
        Json::Object(pairs) => pairs.iter().map(|(key, value)| (key.clone(), in_order(value))).collect(),
        // `1.0` equals `1`.
        Json::Number(number) => number.as_f64().map_or_else(|| json.clone(), Json::from),
        other => other.clone(),
    }
}

impl Case {
    fn run(&self, folder: &Path, theirs: &wasmtime::Engine, ours: &Engine) -> Outcome {
        let wasm = std::fs::read(folder.join(format!("modules/{}.wasm", self.module))).unwrap();
        let json = |text: &str| if text.is_empty() { Some(Json::Null) } else { serde_json::from_str(text).ok() };
        let data = if self.data.is_empty() { "{}" } else { &self.data };
        let (Some(input), Some(data_json)) = (json(&self.input), json(data)) else {
            return Outcome::NotRun("its input is not JSON".to_owned());
        };
        let Ok(mut module) = OpaModule::start(ours, &wasm, None, &Limits::default()) else { return Outcome::NotHere };
        let here = module.evaluate(Some(if self.input.is_empty() { "null" } else { &self.input }), data);
        let there = OpaWasm::start(theirs, &wasm, &data_json).and_then(|mut module| module.evaluate(&input));
        let there = match there {
            Ok(there) => there,
            Err(error) => return Outcome::NotRun(format!("{error:#}")),
        };
        let here = match here {
            Ok(here) => serde_json::from_str(&here.to_json()).unwrap(),
            Err(error) => return Outcome::Differs(format!("here it ended ({error}), there it gave {there}")),
        };
        if in_order(&here) == in_order(&there) {
            Outcome::Same
        } else {
            Outcome::Differs(format!("here {here}, there {there}"))
        }
    }
}

#[test]
fn what_opa_wasm_can_run_comes_to_the_same_here_and_there() {
    let folder = folder();
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let is_taken = |case: &&Case| {
        let of = case.name.split(": ").next().unwrap_or_default();
        FOLDERS.contains(&of) && case.excused.is_empty() && !case.module.is_empty()
    };
    let cases: Vec<&Case> = cases.iter().filter(is_taken).collect();
    let found: BTreeSet<&str> = cases.iter().filter_map(|case| case.name.split(": ").next()).collect();
    let missing: Vec<&str> = FOLDERS.into_iter().filter(|folder| !found.contains(folder)).collect();
    assert!(missing.is_empty(), "no case was found in {missing:?}");
    let (theirs, ours) = (wasmtime::Engine::default(), Engine::new().unwrap());
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = case.run(&folder, &theirs, &ours);
                    outcomes.lock().unwrap().insert(case.name.as_str(), outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    let lines = include_str!("differences.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: BTreeMap<&str, &str> =
        lines.map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("`{line}`"))).collect();
    let (mut same, mut not_run, mut differing) = (0, 0, BTreeMap::new());
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Same => same += 1,
            Outcome::NotRun(why) => {
                println!("not run there: {name}: {}", why.lines().next().unwrap_or_default());
                not_run += 1;
            }
            Outcome::NotHere => println!("refused here: {name}"),
            Outcome::Differs(how) => {
                differing.insert(*name, how);
            }
        }
    }
    println!("{same} the same, {} differ, {not_run} that opa-wasm does not run", differing.len());
    let new: Vec<String> = differing
        .iter()
        .filter(|(name, _)| !known.contains_key(*name))
        .map(|(name, how)| format!("{name} => {how}"))
        .collect();
    let mended: Vec<&&str> = known.keys().filter(|name| !differing.contains_key(*name)).collect();
    assert!(new.is_empty(), "these differ, and differences.txt does not know of them:\n{}", new.join("\n"));
    assert!(mended.is_empty(), "these differ no more: take them out of differences.txt: {mended:?}");
    assert!(same >= 100, "only {same} cases were compared");
}
