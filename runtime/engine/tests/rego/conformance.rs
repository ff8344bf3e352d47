//! OPA's own test cases, compiled to Wasm by OPA's library (`runtime/xtask/conformance`), run by this crate's runner and
//! judged as OPA judges its own host for Wasm. `conformance.txt` lists the differences and may only become shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::{Engine, Limits, ModuleCache, OpaModule, OpaModuleError};
use qosm_rego::Value;
use serde::Deserialize;

/// The folder's name in the xtask.
const FOLDER: &str = "opa-cases-1.22.0-1";

/// Number of cases of OPA 1.22.0; fewer would mean that some were not found.
const ALL: usize = 4_419;

/// Without `QOSM_TEST_ALL` only one case of 32 is run, since each compiles a module.
const SAMPLE: usize = 32;

/// Functions that OPA's tests define themselves.
const OF_TESTS: [&str; 1] = ["test.sleep"];

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    module: String,
    #[serde(default)]
    uncompiled: String,
    #[serde(default)]
    excused: String,
    #[serde(default)]
    input: String,
    #[serde(default)]
    data: String,
    want_defined: Option<bool>,
    want_result: Option<serde_json::Value>,
    want_error: Option<String>,
    #[serde(default)]
    sort_bindings: bool,
}

/// The result of a case.
enum CaseResult {
    Passed,
    /// OPA exempts its own host from the case too.
    Excused,
    /// The case calls functions that this host refuses by design.
    Refused,
    Failed(String),
}

fn folder() -> PathBuf {
    let named = std::env::var_os("QOSM_OPA_CASES").map(PathBuf::from);
    let home = std::env::var_os("HOME").unwrap_or_default();
    let folder = named.unwrap_or_else(|| Path::new(&home).join(".cache/qosm").join(FOLDER));
    assert!(
        folder.join("cases.json").is_file(),
        "{} holds no cases.json: run `cargo xtask setup --for rego`, or name a folder of OPA's cases in QOSM_OPA_CASES",
        folder.display()
    );
    folder
}

impl Case {
    fn run(&self, engine: &Engine, folder: &Path, cache: &ModuleCache) -> CaseResult {
        if !self.excused.is_empty() {
            return CaseResult::Excused;
        }
        if !self.uncompiled.is_empty() {
            return CaseResult::Failed(format!("it cannot be compiled: {}", self.uncompiled));
        }
        let wasm = std::fs::read(folder.join(format!("modules/{}.wasm", self.module))).unwrap();
        // This test checks results; other tests check the limits.
        let limits = Limits { evaluation: Duration::from_secs(10), ..Limits::default() };
        let mut module = match OpaModule::start(engine, &wasm, Some(cache), &limits) {
            Ok(module) => module,
            Err(OpaModuleError::Refused(missing)) => {
                let is_known =
                    |name: &str| OF_TESTS.contains(&name) || qosm_rego::table::names().any(|known| known == name);
                let unknown = missing.iter().find(|missing| !is_known(&missing.name));
                return unknown.map_or(CaseResult::Refused, |missing| {
                    CaseResult::Failed(format!("`{}` is not known", missing.name))
                });
            }
            Err(error) => return CaseResult::Failed(format!("it does not start: {error}")),
        };
        let input = Some(self.input.as_str()).filter(|input| !input.is_empty());
        let data = if self.data.is_empty() { "{}" } else { &self.data };
        let first = module.evaluate(input, data).map_err(|error| error.to_string());
        let is_ended = first.is_err();
        if !is_ended {
            let again = module.evaluate(input, data).map_err(|error| error.to_string());
            if again != first {
                return CaseResult::Failed(format!("first {first:?}, then {again:?}"));
            }
        }
        match self.wrong(first) {
            None => CaseResult::Passed,
            Some(why) => CaseResult::Failed(why),
        }
    }

    fn wrong(&self, given: Result<Value, String>) -> Option<String> {
        if let Some(expected) = &self.want_error {
            let error = match given {
                Ok(results) => return Some(format!("an error is expected ({expected}), it gave {results}")),
                Err(error) => error,
            };
            let is_it = expected == "eval_conflict_error"
                && ["var assignment conflict", "object insert conflict"].iter().any(|words| error.contains(words));
            return (!is_it).then(|| format!("{expected} is expected, it ended with: {error}"));
        }
        let results = match given {
            Ok(results) => results,
            Err(error) => return Some(format!("it ended: {error}")),
        };
        let results = results.as_set().cloned().unwrap_or_default();
        if let Some(wanted) = self.want_defined {
            let is_defined = !results.is_empty();
            return (is_defined != wanted).then(|| format!("defined: {is_defined}, expected: {wanted}"));
        }
        let Some(wanted) = &self.want_result else { return Some("it expects nothing".to_owned()) };
        let wanted = Value::from_json(&wanted.to_string()).unwrap();
        let wanted: BTreeSet<Value> = wanted.as_array().unwrap().iter().cloned().collect();
        let given: BTreeSet<Value> = results.iter().map(|bindings| self.as_json(bindings)).collect();
        (given != wanted).then(|| format!("expected {}, given {}", Value::from(wanted), Value::from(given)))
    }

    /// Converted through JSON, which turns sets into arrays.
    fn as_json(&self, bindings: &Value) -> Value {
        let bindings = Value::from_json(&bindings.to_json()).unwrap();
        let Value::Object(mut bindings) = bindings else { panic!("{}: no bindings", self.name) };
        if self.sort_bindings {
            for value in bindings.values_mut() {
                if let Value::Array(elements) = value {
                    elements.sort();
                }
            }
        }
        Value::Object(bindings)
    }
}

/// The differing cases by name, each with the reason.
fn known() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("conformance.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("`{line}` has no ` => ` and a reason"))).collect()
}

#[test]
fn opas_own_cases_pass_save_for_those_that_are_known_to_differ() {
    let folder = folder();
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), ALL);
    // To debug one: `QOSM_OPA_ONLY=v1/sprintf` selects those whose names begin with it.
    let only = std::env::var("QOSM_OPA_ONLY").unwrap_or_default();
    let is_whole = !only.is_empty() || std::env::var_os("QOSM_TEST_ALL").is_some();
    let cases: Vec<Case> = cases
        .into_iter()
        .enumerate()
        .filter(|(place, case)| case.name.starts_with(&only) && (is_whole || place % SAMPLE == 0))
        .map(|(_, case)| case)
        .collect();
    // Compiled modules are kept beside the cases, since compiling them takes minutes for each version of OPA and of the engine.
    let compiled = folder.join("compiled");
    std::fs::create_dir_all(&compiled).unwrap();
    let cache = ModuleCache::open(Dir::open_ambient_dir(&compiled, ambient_authority()).unwrap()).unwrap();
    let engine = Engine::new().unwrap();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = case.run(&engine, &folder, &cache);
                    verdicts.lock().unwrap().push((case.name.as_str(), verdict));
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().unwrap();
    let are_run: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let known: BTreeMap<_, _> = known().into_iter().filter(|(name, _)| are_run.contains(name)).collect();
    let (mut passed, mut excused, mut refused) = (0, 0, 0);
    let mut failed = BTreeMap::new();
    for (name, verdict) in verdicts {
        match verdict {
            CaseResult::Passed => passed += 1,
            CaseResult::Excused => excused += 1,
            CaseResult::Refused => refused += 1,
            CaseResult::Failed(why) => {
                failed.insert(name, why);
            }
        }
    }
    println!("{passed} passed, {} failed, {refused} refused, {excused} excused", failed.len());
    let new: Vec<String> = failed
        .iter()
        .filter(|(name, _)| !known.contains_key(*name))
        .map(|(name, why)| format!("{name} => {why}"))
        .collect();
    let repaired: Vec<&str> = known.keys().copied().filter(|name| !failed.contains_key(name)).collect();
    assert!(new.is_empty(), "these differ, and conformance.txt does not know of them:\n{}", new.join("\n"));
    assert!(repaired.is_empty(), "these differ no more: take them out of conformance.txt:\n{}", repaired.join("\n"));
    // Fails if a function that worked before is refused.
    assert!(refused <= 654, "{refused} cases are refused");
}
