//! Modules that are not loaded, and the reasons.

use qosm_engine::{Cause, Columns, Compiler, Digest, Engine, EngineError, Interface, Limits, Module};
use qosm_model::knob::{Knob, Target};
use qosm_model::pod::Tier;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, everything};
use crate::guest;

fn load(wasm: &[u8]) -> Result<Module, EngineError> {
    ENGINE.load(wasm, None, &Compiler::InProcess)
}

/// The error and its causes.
fn refusal(wasm: &[u8]) -> String {
    let error = load(wasm).unwrap_err();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn the_imports_are_read_off_the_binary() {
    let wasm = guest::worker();
    let inspection = ENGINE.inspect(&wasm).unwrap();
    let all: Vec<_> = Interface::ALL.into_iter().collect();
    assert_eq!(inspection.imports, all);
    assert_eq!(inspection.digest, Digest::of(&wasm));
    assert_eq!(inspection.size, wasm.len());
    assert!(inspection.unknown_imports.is_empty() && inspection.exports_lifecycle);
    assert_eq!(inspection.contract_version.as_deref(), Some("0.1.3"));

    let idle = ENGINE.inspect(&guest::component("")).unwrap();
    assert!(idle.imports.is_empty(), "what is not used is not imported");
    assert_eq!(load(&guest::component("")).unwrap().imports().len(), 0);
}

#[test]
fn other_files_are_distinguished() {
    let cases: [(&[u8], &str); 7] = [
        (b"", "an empty file"),
        (b"\x7fELF\x02\x01", "a native program or compiled module"),
        (b"  (module)", "WebAssembly text"),
        (b";; a comment\n(component)", "WebAssembly text"),
        (b"\0asm\x01\0\0\0", "a core Wasm module"),
        (b"package qosm", "an unknown kind of file"),
        (b"\0asm", "an unknown kind of file"),
    ];
    for (bytes, found) in cases {
        let error = load(bytes).unwrap_err();
        assert!(matches!(&error, EngineError::NotAComponent { found: what, .. } if *what == found), "{error}");
    }
    assert!(matches!(load(&vec![0; (16 << 20) + 1]).unwrap_err(), EngineError::TooLarge { .. }));
}

#[test]
fn a_module_with_more_functions_than_any_policy_needs_is_refused() {
    let functions = |count: usize| guest::component(&"(func)".repeat(count));
    assert!(load(&functions(10_000)).is_ok(), "Python has some 16000");
    let error = load(&functions(128 << 10)).unwrap_err();
    assert!(matches!(&error, EngineError::TooManyItems { items, .. } if *items > 128 << 10), "{error}");
}

#[test]
fn an_import_that_no_host_offers_is_named() {
    let wit = guest::contract().replace("world policy {", "world policy {\n import wasi:cli/environment@0.2.0;")
        + "\npackage wasi:cli@0.2.0 { interface environment { home: func() -> u32; } }";
    let fields = r#"(import "wasi:cli/environment@0.2.0" "home" (func $home (result i32)))"#;
    let wasm = guest::component_for(&wit, fields);
    assert_eq!(ENGINE.inspect(&wasm).unwrap().unknown_imports, ["wasi:cli/environment@0.2.0"]);
    let error = refusal(&wasm);
    assert!(error.contains("imports `wasi:cli/environment@0.2.0`, which this host does not offer"), "{error}");
    assert!(error.contains("without WASI"), "{error}");
}

#[test]
fn patch_versions_fit_and_minor_versions_do_not() {
    let fields = r#"(import "qosm:policy/cpu-stat@0.1.0" "read" (func $read (param i32)))"#;
    let later = guest::component_for(&contract_of("0.1.9"), fields);
    let module = load(&later).unwrap();
    assert!(module.imports().contains(&Interface::CpuStat));
    assert_eq!(ENGINE.inspect(&later).unwrap().contract_version.as_deref(), Some("0.1.9"));
    assert_eq!(ENGINE.describe(&module).unwrap().name, "worker");

    let other = guest::component_for(&contract_of("0.2.0"), fields);
    assert!(!ENGINE.inspect(&other).unwrap().exports_lifecycle);
    let error = refusal(&other);
    assert!(error.contains("built for version 0.2.0 of `qosm:policy`, and this host speaks 0.1.3"), "{error}");
}

/// The contract under another version.
fn contract_of(version: &str) -> String {
    guest::contract().replace("qosm:policy@0.1.3", &format!("qosm:policy@{version}"))
}

#[test]
fn a_module_of_an_earlier_patch_version_runs() {
    let fields = r#"
        (import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
        (func $evaluate (param i64 i32 i32 i32) (result i32)
          (call $set_burst (i32.const 0) (i32.const 1) (i64.const 6000) (i32.const 16) (i32.const 0))
          (i32.const 16))"#;
    for version in ["0.1.0", "0.1.1", "0.1.2"] {
        let wasm = guest::component_for(&contract_of(version), fields);
        let module = load(&wasm).unwrap();
        assert_eq!(ENGINE.inspect(&wasm).unwrap().contract_version.as_deref(), Some(version));
        let mut worker = ENGINE.instantiate(&module, "worker", &everything(), &Limits::default(), Vec::new()).unwrap();
        worker.configure("{}").unwrap();
        let staged = worker.evaluate(Micros(1), Cause::Interval, &Columns::default()).unwrap();
        let tier = Target::Tier(Tier::Burstable);
        assert!(
            matches!(&staged.settings[..], [Setting::Hold { target, knob: Knob::CfsBurst, .. }] if *target == tier),
            "{staged:?}"
        );
    }
}

#[test]
fn a_module_that_needs_a_later_patch_version_names_both() {
    let wit = contract_of("0.1.4").replace("world policy {", "world policy {\n import gpu;")
        + "\ninterface gpu { halt: func(); }";
    let error = refusal(&guest::component_for(&wit, r#"(import "qosm:policy/gpu@0.1.0" "halt" (func $halt))"#));
    assert!(error.contains("imports `qosm:policy/gpu@0.1.4`, which this host does not offer"), "{error}");
    assert!(error.contains("built for version 0.1.4") && error.contains("this host speaks 0.1.3"), "{error}");
}

#[test]
fn a_function_that_the_contract_does_not_have_is_a_mismatch() {
    let wit =
        guest::contract().replace("    read: func() -> sample;", "    read: func() -> sample;\n    halt: func();");
    let wasm = guest::component_for(&wit, r#"(import "qosm:policy/node@0.1.0" "halt" (func $halt))"#);
    let error = refusal(&wasm);
    assert!(error.contains("does not fit version 0.1.3") && error.contains("halt"), "{error}");
}

#[test]
fn another_type_is_a_mismatch() {
    let wit = guest::contract().replace("period-usec: u64,", "period-usec: u32,");
    let fields = r#"(import "qosm:policy/cpu-stat@0.1.0" "read-bandwidth" (func $read (param i32)))"#;
    assert!(matches!(load(&guest::component_for(&wit, fields)).unwrap_err(), EngineError::Mismatch { .. }));
}

#[test]
fn a_component_without_the_exports_is_no_policy() {
    assert!(matches!(load(&wat::parse_str("(component)").unwrap()).unwrap_err(), EngineError::NoLifecycle { .. }));
    let hollow = r#"(component (instance $i) (export "qosm:policy/lifecycle@0.1.0" (instance $i)))"#;
    assert!(matches!(load(&wat::parse_str(hollow).unwrap()).unwrap_err(), EngineError::Mismatch { .. }));
}

#[test]
fn a_composition_is_refused() {
    let inner = r#"(component (component $inner (core module $m) (core instance (instantiate $m))) (instance (instantiate $inner)))"#;
    assert!(matches!(load(&wat::parse_str(inner).unwrap()).unwrap_err(), EngineError::Composed { .. }));
    let passed = "(component (component $inner (import \"m\" (core module $m)) (core instance (instantiate $m))))";
    assert!(matches!(load(&wat::parse_str(passed).unwrap()).unwrap_err(), EngineError::Composed { .. }));
}

#[test]
fn proposals_that_policies_do_not_need_are_off() {
    for (what, fields) in [
        ("simd", "(func (result v128) (v128.const i64x2 0 0))"),
        ("memory64", "(memory i64 1)"),
        ("two memories", "(memory 1) (memory 1)"),
        ("shared memory", "(memory 1 1 shared)"),
        ("tail calls", "(func $f (return_call $f))"),
        ("exceptions", "(tag)"),
        ("gc", "(type (struct))"),
    ] {
        let text = format!(
            "(component (core module {fields}) (instance $i) (export \"qosm:policy/lifecycle@0.1.0\" (instance $i)))"
        );
        let wasm = wat::parse_str(&text).unwrap();
        assert!(matches!(load(&wasm).unwrap_err(), EngineError::Compile { .. }), "{what}");
    }
}

#[test]
fn no_damage_makes_the_inspection_panic() {
    let good = guest::component("");
    for length in 0..good.len() {
        assert!(load_is_refused_or_fine(&ENGINE, &good[..length]));
    }
    let mut damaged = good.clone();
    for at in 0..good.len() {
        for bit in [0x01, 0x80] {
            damaged[at] ^= bit;
            load_is_refused_or_fine(&ENGINE, &damaged);
            damaged[at] = good[at];
        }
    }
}

fn load_is_refused_or_fine(engine: &Engine, wasm: &[u8]) -> bool {
    engine.inspect(wasm).is_err() || engine.inspect(wasm).is_ok()
}

#[test]
fn a_module_cut_short_does_not_load() {
    let good = guest::component("");
    for length in (0..good.len()).step_by(97) {
        assert!(load(&good[..length]).is_err(), "{length} bytes");
    }
}
