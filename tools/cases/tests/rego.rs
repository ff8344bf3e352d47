//! The Rego template and examples: their cases hold for the bundles that `opa build` compiled, and the library lists the agent's knobs.
//!
//! The bundles are in `rego/` of cargo's target directory, where `cargo xtask rego` puts them, or in `QOSM_BUNDLES`.

use std::error::Error;
use std::path::{Path, PathBuf};

use qosm_cases::Wasm;
use qosm_engine::{Compiler, Engine, Interface};
use qosm_model::knob::Knob;
use qosm_sdk::testing::run_folder;

/// A policy with a built bundle.
struct Bundle {
    name: &'static str,
    /// Path of its project, from the repository's root.
    source: &'static str,
}

const TEMPLATE: Bundle = Bundle { name: "my-policy", source: "sdk/templates/rego" };
const BATCH_NAMESPACES: Bundle = Bundle { name: "rego-batch-namespaces", source: "examples/rego-batch-namespaces" };
const REPORT_ONLY: Bundle = Bundle { name: "rego-report-only", source: "examples/rego-report-only" };

impl Bundle {
    fn bytes(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        let folder = match std::env::var_os("QOSM_BUNDLES") {
            Some(folder) => PathBuf::from(folder),
            // From target/debug/deps/rego-1234.
            None => std::env::current_exe()?.ancestors().nth(3).unwrap_or(Path::new(".")).join("rego"),
        };
        let file = folder.join(format!("{}.tar.gz", self.name));
        std::fs::read(&file)
            .map_err(|error| format!("{}: {error}; run `cargo xtask rego` first", file.display()).into())
    }

    /// Plays its cases, each to a fresh instance that is granted what its METADATA request and nothing else.
    fn play(&self) -> Result<(), Box<dyn Error>> {
        let engine = Engine::new()?;
        let module = engine.load(&self.bytes()?, None, &Compiler::InProcess)?;
        let folder = repository(self.source).join("tests/cases");
        Ok(run_folder(folder, || Wasm::start(&engine, &module, self.name))?)
    }

    /// The interfaces that an operator has to grant it.
    fn asks_for(&self) -> Result<Vec<Interface>, Box<dyn Error>> {
        let module = Engine::new()?.load(&self.bytes()?, None, &Compiler::InProcess)?;
        Ok(module.imports().iter().copied().filter(|interface| !interface.always_granted()).collect())
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_cases_of_the_template_hold() -> Result<(), Box<dyn Error>> {
    TEMPLATE.play()
}

#[test]
fn the_cases_of_batch_namespaces_hold() -> Result<(), Box<dyn Error>> {
    BATCH_NAMESPACES.play()
}

#[test]
fn the_cases_of_report_only_hold() -> Result<(), Box<dyn Error>> {
    REPORT_ONLY.play()
}

#[test]
fn report_only_asks_for_no_knob() -> Result<(), Box<dyn Error>> {
    use Interface::{CpuStat, MemoryStat, PodEvent};
    assert_eq!(REPORT_ONLY.asks_for()?, [CpuStat, MemoryStat, PodEvent]);
    Ok(())
}

/// `data.qosm.lib.knobs.grants` is a copy of the engine's table, with which `testing.faults` finds unknown knobs and missing grants.
#[test]
fn the_library_knows_every_knob_and_its_grant() -> Result<(), Box<dyn Error>> {
    let library = std::fs::read_to_string(repository("sdk/rego/qosm/knobs.rego"))?;
    let (_, table) = library.split_once("\ngrants := {\n").ok_or("knobs.rego has no table `grants`")?;
    let table: Vec<&str> = table.lines().take_while(|line| *line != "}").map(str::trim).collect();
    let rows = Knob::ALL.map(|knob| format!("\"{knob}\": \"{}\",", Interface::of(knob)));
    for row in &rows {
        assert!(table.contains(&row.as_str()), "{row} is missing in {table:#?}");
    }
    assert_eq!(table.len(), rows.len(), "{table:#?}");
    Ok(())
}

/// Rules with METADATA are for policies; the others are the library's own.
#[test]
fn the_librarys_page_names_every_rule_for_policies() -> Result<(), Box<dyn Error>> {
    let page = std::fs::read_to_string(repository("sdk/rego/README.md"))?;
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(repository("sdk/rego/qosm"))? {
        let path = entry?.path();
        let package = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut has_metadata = false;
        for line in std::fs::read_to_string(&path)?.lines() {
            if line.starts_with('#') {
                has_metadata |= line == "# METADATA";
                continue;
            }
            let rule: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let is_for_policies = std::mem::take(&mut has_metadata) && rule != "package";
            let is_named = ["`", "("].iter().any(|end| page.contains(&format!("`{package}.{rule}{end}")));
            if is_for_policies && !is_named {
                missing.push(format!("{package}.{rule}"));
            }
        }
    }
    assert!(missing.is_empty(), "sdk/rego/README.md lacks {missing:?}");
    Ok(())
}
