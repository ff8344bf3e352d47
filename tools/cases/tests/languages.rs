//! The contract is independent of languages: the same policy in Go and in Python, as components in the engine that nodes run, passes the
//! same cases as in Rust.
//!
//! `cargo xtask test --only languages` builds the components and sets QOSM_LANGUAGES to their folder.

use std::error::Error;
use std::path::{Path, PathBuf};

use qosm_cases::Wasm;
use qosm_engine::{Compiler, Engine, Interface, Module};
use qosm_sdk::testing::run_folder;

/// The cases of the examples, and those of the template for Rust, which is the same policy.
const CASES: [&str; 2] = ["examples/go-policy/tests/cases", "sdk/templates/rust/tests/cases"];

fn load(engine: &Engine, language: &str) -> Result<Module, Box<dyn Error>> {
    let folder = std::env::var_os("QOSM_LANGUAGES");
    let folder = folder.ok_or("QOSM_LANGUAGES is not said: run `cargo xtask test --only languages`")?;
    let file = PathBuf::from(folder).join(format!("{language}-policy.wasm"));
    let wasm = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(engine.load(&wasm, None, &Compiler::InProcess)?)
}

/// Plays the cases, each to a fresh instance with the default limits.
fn play(language: &str) -> Result<(), Box<dyn Error>> {
    let engine = Engine::new()?;
    let module = load(&engine, language)?;
    for folder in CASES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        run_folder(folder, || Wasm::start(&engine, &module, language))?;
    }
    Ok(())
}

/// Checks the description and the imports, which an operator sees and grants.
fn describes_itself(language: &str) -> Result<(), Box<dyn Error>> {
    let engine = Engine::new()?;
    let module = load(&engine, language)?;
    let imports: Vec<_> = module.imports().iter().copied().collect();
    assert_eq!(imports, [Interface::Log, Interface::MemoryProtection], "and no WASI");
    let description = engine.describe(&module)?;
    assert_eq!(description.name, "memory-high");
    Ok(())
}

#[test]
fn the_cases_hold_in_go() -> Result<(), Box<dyn Error>> {
    play("go")
}

#[test]
fn the_cases_hold_in_python() -> Result<(), Box<dyn Error>> {
    play("python")
}

#[test]
fn the_policy_in_go_describes_itself_and_imports_what_it_needs() -> Result<(), Box<dyn Error>> {
    describes_itself("go")
}

#[test]
fn the_policy_in_python_describes_itself_and_imports_what_it_needs() -> Result<(), Box<dyn Error>> {
    describes_itself("python")
}
