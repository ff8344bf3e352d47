//! Modules in WebAssembly text: they fail, or set the weight of a container.

use std::fmt::Write as _;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const CONTRACT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/wit/policy.wit"));
/// Address of the result `ok`, which is all zeros.
const OK: u32 = 16;
/// Address of the record that `describe` returns; zeros follow it.
const DESCRIPTION: u32 = 1024;
const STRINGS: u32 = 2048;
/// Offset of the interval in that record.
const INTERVAL: usize = 116;

/// What an evaluation does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluation {
    /// It asks for nothing.
    Idles,
    /// It traps from this call of an instance on.
    TrapsFrom(u32),
    /// It reports a problem of the cluster's configuration until this call of an instance, and traps from there on.
    ReportsUntil(u32),
    /// It sets this weight on container 1 while there is a pod; it needs `cpu-weight`.
    Weighs(u32),
    /// It sets the age of its saved state, in milliseconds, as the weight; 9999 if the age is not known. It needs `cpu-weight`.
    WeighsAge,
    /// It reads the generation of this interface, e.g. `cluster-config`, and asks for nothing.
    Reads(&'static str),
}

/// A component whose description has this name, and which is evaluated once a second.
pub(crate) fn component(name: &str, evaluation: Evaluation) -> Vec<u8> {
    let (import, work) = match evaluation {
        Evaluation::Idles => (String::new(), String::new()),
        Evaluation::TrapsFrom(call) => (String::new(), traps_from(call)),
        Evaluation::ReportsUntil(call) => (
            format!(
                r#"(import "qosm:policy/log@{}" "problem" (func $problem (param i32 i32 i32 i32 i32 i32)))"#,
                version()
            ),
            // All its texts are empty.
            format!("{} (call $problem {})", traps_from(call), "(i32.const 0) ".repeat(6)),
        ),
        Evaluation::Reads(object) => (
            format!(r#"(import "qosm:policy/{object}@{}" "generation" (func $generation (result i64)))"#, version()),
            "(drop (call $generation))".to_owned(),
        ),
        Evaluation::WeighsAge => (
            format!(
                r#"(import "qosm:policy/cpu-weight@{version}" "set-weight" (func $set_weight (param i32 i32 i32 i32 i32)))
                (import "qosm:policy/state@{version}" "age-usec" (func $age (param i32)))"#,
                version = version()
            ),
            "(if (global.get $has_pod) (then
                (call $age (i32.const 512))
                (call $set_weight (i32.const 2) (i32.const 1)
                    (select (i32.wrap_i64 (i64.div_u (i64.load (i32.const 520)) (i64.const 1000))) (i32.const 9999)
                        (i32.load8_u (i32.const 512)))
                    (i32.const 0) (i32.const 0))))"
                .to_owned(),
        ),
        Evaluation::Weighs(weight) => (
            format!(
                r#"(import "qosm:policy/cpu-weight@{}" "set-weight" (func $set_weight (param i32 i32 i32 i32 i32)))"#,
                version()
            ),
            // A target is a case and an id; 2 is a container. The reason is empty.
            format!(
                "(if (global.get $has_pod) (then (call $set_weight (i32.const 2) (i32.const 1) (i32.const {weight})
                    (i32.const 0) (i32.const 0))))"
            ),
        ),
    };
    let text = format!(
        r#"(module
            {import}
            (memory (export "memory") 2)
            (global $calls (mut i32) (i32.const 0))
            (global $has_pod (mut i32) (i32.const 0))
            (global $heap (mut i32) (i32.const 65536))
            (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
                (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
                (global.set $heap (i32.add (local.get $at) (local.get $size)))
                (local.get $at))
            (func $describe (result i32) (i32.const {DESCRIPTION}))
            (func $configure (param i32 i32) (result i32) (i32.const {OK}))
            (func $pods (param i32) (param $count i32) (param i32) (param $gone i32) (result i32)
                (if (local.get $gone) (then (global.set $has_pod (i32.const 0))))
                (if (local.get $count) (then (global.set $has_pod (i32.const 1))))
                (i32.const {OK}))
            (func $evaluate (param i64 i32 i32 i32) (result i32)
                (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
                {work}
                (i32.const {OK}))
            (func $start_over (param i32) (global.set $heap (i32.const 65536)))
            {exports}
            {description})"#,
        exports = exports(),
        description = description(name),
    );
    let mut core = wat::parse_str(&text).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", CONTRACT).unwrap();
    let world = resolve.select_world(&[package], Some("policy")).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&core).unwrap().encode().unwrap()
}

fn traps_from(call: u32) -> String {
    format!("(if (i32.ge_u (global.get $calls) (i32.const {call})) (then unreachable))")
}

fn version() -> &'static str {
    CONTRACT.lines().find_map(|line| line.strip_prefix("package qosm:policy@")).unwrap().trim_end_matches(';')
}

fn exports() -> String {
    let version = version();
    let mut text = String::new();
    for export in ["describe", "configure", "pods", "evaluate"] {
        let name = format!("qosm:policy/lifecycle@{version}#{export}");
        writeln!(text, "(export \"{name}\" (func ${export})) (export \"cabi_post_{name}\" (func $start_over))")
            .unwrap();
    }
    text
}

/// The record as the canonical ABI lays it out: three strings, no protocol, no schema, an evaluation a second.
fn description(name: &str) -> String {
    let (mut strings, mut record) = (Vec::new(), Vec::new());
    for field in [name, "0.1.0", "Does what a test asks for."] {
        record.extend((STRINGS + u32::try_from(strings.len()).unwrap()).to_le_bytes());
        record.extend(u32::try_from(field.len()).unwrap().to_le_bytes());
        strings.extend(field.as_bytes());
    }
    record.resize(INTERVAL, 0);
    record.extend(1000_u32.to_le_bytes());
    let data = |at: u32, bytes: &[u8]| {
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!("(data (i32.const {at}) \"{escaped}\")\n")
    };
    data(DESCRIPTION, &record) + &data(STRINGS, &strings)
}
