//! Checks that each library of `runtime` enables the lint for the bans in `clippy.toml`, which do not apply to tests, tools and programs.
//! And that the agent stays modular: few fields, no import cycles, no knobs by name.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const GUARD: &str = "#![cfg_attr(not(test), warn(clippy::disallowed_methods))]";

/// Libraries that need no lint, with the reason.
const WITHOUT: [(&str, &str); 2] = [("features", "has no code"), ("book", "reads the documentation for its tests")];

fn runtime() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn each_library_opens_no_path_asks_no_clock_and_starts_no_thread_unless_it_says_why() {
    let mut guarded = Vec::new();
    for entry in fs::read_dir(runtime()).unwrap() {
        let folder = entry.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let library = folder.path().join("src/lib.rs");
        // A separate workspace, which no program links.
        if !library.is_file() || name == "opa-wasm" || WITHOUT.iter().any(|(without, _)| *without == name) {
            continue;
        }
        let text = fs::read_to_string(library).unwrap();
        assert!(text.lines().any(|line| line == GUARD), "runtime/{name}/src/lib.rs lacks `{GUARD}`");
        guarded.push(name);
    }
    assert!(guarded.len() >= 12, "{guarded:?}");
}

#[test]
fn what_is_banned_has_a_reason() {
    let clippy = fs::read_to_string(runtime().join("../clippy.toml")).unwrap();
    let bans: Vec<&str> = clippy.lines().filter(|line| line.trim_start().starts_with("{ path")).collect();
    for (what, least) in [("\"std::fs::", 20), ("::now\"", 3), ("::spawn", 5)] {
        assert!(
            bans.iter().filter(|ban| ban.contains(what)).count() >= least,
            "{what} is banned too seldom: {bans:#?}"
        );
    }
    assert!(bans.iter().all(|ban| ban.contains("reason = \"")), "{bans:#?}");
}

/// Modules of the agent that are compiled for tests only.
const FOR_TESTS: [&str; 2] = ["crashes", "fuzz_checks"];

/// The agent's modules by path, without comments and tests.
fn agent() -> BTreeMap<String, String> {
    let root = runtime().join("agent/src");
    let (mut modules, mut open) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let relative = path.strip_prefix(&root).unwrap().with_extension("");
            let segments: Vec<&str> = relative.iter().map(|segment| segment.to_str().unwrap()).collect();
            if segments.iter().any(|segment| *segment == "tests" || FOR_TESTS.contains(segment)) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            modules.insert(segments.join("::"), code.collect::<Vec<_>>().join("\n"));
        }
    }
    modules
}

/// Parses the rest of a path or import tree, such as `a::{b, c::d}`, and collects the paths in it.
fn paths<'a>(mut text: &'a str, before: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut path = before.to_vec();
    loop {
        text = text.trim_start();
        if let Some(mut rest) = text.strip_prefix('{') {
            while !rest.trim_start().starts_with('}') {
                rest = paths(rest, &path, found).trim_start();
                // Skip `as` and the name that follows it.
                rest = &rest[rest.find([',', '}']).unwrap()..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            return &rest.trim_start()[1..];
        }
        let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
        path.push(&text[..end]);
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(path);
                return text;
            }
        }
    }
}

/// The modules that a module refers to.
fn imports(module: &str, code: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut named = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (place, _) in code.match_indices(root) {
            let before = code[..place].chars().next_back();
            if !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                paths(&code[place..], &[], &mut named);
            }
        }
    }
    let mut imports = BTreeSet::new();
    for path in named {
        let ups = path.iter().filter(|segment| **segment == "super").count();
        let own: Vec<&str> = module.split("::").collect();
        let own = if path[0] == "crate" { &[] } else { &own[..own.len().saturating_sub(ups)] };
        let below = path.iter().filter(|segment| !["crate", "super", "self"].contains(*segment));
        let path: Vec<&str> = own.iter().chain(below).copied().collect();
        let known = (1..=path.len()).rev().map(|length| path[..length].join("::"));
        imports.extend(known.into_iter().find(|path| modules.contains_key(path)).filter(|path| path != module));
    }
    imports
}

/// The largest set of modules that import each other, directly or indirectly.
fn largest_circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<&str> {
    let reached = |from: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for next in edges.get(module).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|module| (module.as_str(), reached(module))).collect();
    let circle = |module: &str| -> Vec<&str> {
        all[module].iter().filter(|other| all[**other].contains(module)).copied().collect()
    };
    all.keys().map(|module| circle(module)).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn no_more_than_three_modules_of_the_agent_import_each_other() {
    let modules = agent();
    let edges: BTreeMap<String, BTreeSet<String>> =
        modules.iter().map(|(module, code)| (module.clone(), imports(module, code, &modules))).collect();
    let known = |from: &str, to: &str| assert!(edges[from].contains(to), "{from} imports {:?}", edges[from]);
    known("agent", "ledger");
    known("agent::observe", "policy_set::resolved");
    known("policies::canary", "policies");
    let circle = largest_circle(&edges);
    let mut arrows: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for &module in &circle {
        arrows.insert(module, edges[module].iter().filter(|to| circle.contains(&to.as_str())).collect());
    }
    assert!(circle.len() <= 3, "{arrows:#?}");
}

#[test]
fn circles_are_found_through_import_trees_and_paths_in_code() {
    let code = |text: &str| text.to_owned();
    let modules: BTreeMap<String, String> = [
        ("a", code("use crate::{\n    b as x,\n    c::{self, D},\n};")),
        ("b", code("fn f() { crate::c::g::<u8>() }")),
        ("c", code("use self::inner::Inner;")),
        ("c::inner", code("use super::super::a;\nmacro_rules! m { () => { $crate::b::F } }")),
        ("d", code("use crate::a;\nuse other_crate::d;")),
    ]
    .into_iter()
    .map(|(module, code)| (module.to_owned(), code))
    .collect();
    let edges: BTreeMap<String, BTreeSet<String>> =
        modules.iter().map(|(module, code)| (module.clone(), imports(module, code, &modules))).collect();
    let names = |module: &str| edges[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names("a"), ["b", "c"]);
    assert_eq!(names("b"), ["c"]);
    assert_eq!(names("c"), ["c::inner"]);
    assert_eq!(names("c::inner"), ["a", "b"]);
    assert_eq!(names("d"), ["a"]);
    assert_eq!(largest_circle(&edges), ["a", "b", "c", "c::inner"]);
}

#[test]
fn the_agent_has_few_fields_all_private_and_few_files() {
    let modules = agent();
    let (_, from) = modules["agent"].split_once("\npub struct Agent {\n").unwrap();
    let fields: Vec<&str> = from.split_once("\n}").unwrap().0.lines().map(str::trim).collect();
    assert!((1..=12).contains(&fields.len()), "{fields:#?}");
    assert!(fields.iter().all(|field| !field.starts_with("pub") && field.contains(": ")), "{fields:#?}");
    let has_impl = |code: &str| code.lines().any(|line| line.starts_with("impl") && line.ends_with(" Agent {"));
    let files: Vec<&String> = modules.iter().filter(|(_, code)| has_impl(code)).map(|(module, _)| module).collect();
    assert!((1..=3).contains(&files.len()), "{files:?}");
}

#[test]
fn the_agent_names_no_knob_but_in_guard_rails() {
    for (module, code) in agent() {
        // `Knob::CpuMax` is a knob, `Knob::ALL` a list of knobs.
        let variant = |rest: &str| rest.starts_with(char::is_uppercase) && rest[1..].starts_with(char::is_lowercase);
        let named = code.match_indices("Knob::").filter(|(place, name)| variant(&code[place + name.len()..])).count();
        let allowed = if module == "ledger::rails" { 3 } else { 0 };
        assert!(named <= allowed, "{module} names {named} knobs; `qosm_host::knob_table` tells them apart");
    }
}
