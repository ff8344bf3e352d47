//! The default modules as components: the same cases that hold for a policy's own code hold for what was built from it, and no
//! component imports more than its policy needs.
//!
//! The components come from `policies/` in cargo's target directory, where `make build` puts them, or from `QOSM_MODULE_DIR`.

use std::error::Error;
use std::path::{Path, PathBuf};

use qosm_cases::Wasm;
use qosm_engine::{Compiler, Engine, Interface};
use qosm_sdk::testing::run_folder;

/// The file of a module that was built.
fn file(policy: &str) -> Result<PathBuf, Box<dyn Error>> {
    let folder = match std::env::var_os("QOSM_MODULE_DIR") {
        Some(folder) => PathBuf::from(folder),
        // Of target/release/deps/cases-1234.
        None => std::env::current_exe()?.ancestors().nth(3).unwrap_or(Path::new(".")).join("policies"),
    };
    let file = folder.join(policy).with_extension("wasm");
    if !file.is_file() {
        let file = file.display();
        return Err(format!("{file} is missing: run `make build` first, or say the folder in QOSM_MODULE_DIR").into());
    }
    Ok(file)
}

/// Plays a policy's cases, each to a fresh instance that may do what the module imports and nothing else.
fn play(policy: &str) -> Result<(), Box<dyn Error>> {
    let engine = Engine::new()?;
    let module = engine.load(&std::fs::read(file(policy)?)?, None, &Compiler::InProcess)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(policy).join("tests/cases");
    Ok(run_folder(folder, || Wasm::start(&engine, &module, policy))?)
}

fn imports(policy: &str) -> Result<Vec<Interface>, Box<dyn Error>> {
    let inspection = Engine::new()?.inspect(&std::fs::read(file(policy)?)?)?;
    assert_eq!(inspection.unknown_imports, <[String; 0]>::default(), "{policy}");
    Ok(inspection.imports)
}

#[test]
fn the_cases_of_cpu_burst_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    play("cpu-burst")
}

#[test]
fn the_cases_of_memory_qos_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    play("memory-qos")
}

#[test]
fn the_cases_of_memory_locality_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    play("memory-locality")
}

#[test]
fn cpu_burst_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{CpuBandwidth, CpuStat, Log, Node, State};
    assert_eq!(imports("cpu-burst")?, [Log, State, Node, CpuStat, CpuBandwidth]);
    Ok(())
}

#[test]
fn memory_qos_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{Log, MemoryProtection, Node};
    assert_eq!(imports("memory-qos")?, [Log, Node, MemoryProtection]);
    Ok(())
}

#[test]
fn memory_locality_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{Cpuset, Log, NumaStat, PageMigration, PodEvent, State};
    assert_eq!(imports("memory-locality")?, [Log, State, NumaStat, Cpuset, PageMigration, PodEvent]);
    Ok(())
}
