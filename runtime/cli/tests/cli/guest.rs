//! Modules that do what no default module does: fail in different ways, save state, set weights, or keep memory on a NUMA node.
//! Those that fail import nothing, so they need no grants. The tests on the kernel use this file as well.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const CONTRACT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/wit/policy.wit"));
/// Address of the result `ok`: zeros.
const OK: u32 = 16;
/// Address of the record that `describe` returns, followed by zeros for fields that a later contract may add.
const DESCRIPTION: u32 = 1024;
const STRINGS: u32 = 2048;
/// Address of the list of requested NUMA nodes.
const NODES: u32 = 32;
/// Address for the result of an import.
const ANSWER: u32 = 8192;
/// Offset of the configuration's schema in the record: present or not, address, length.
const SCHEMA: usize = 104;
/// Offset of the interval, the last field before the list of triggers.
const INTERVAL: usize = 116;
/// Schema that accepts what the tests configure; the module ignores it.
const TAKES: &str = r#"{"properties": {"profile": {"type": "string"}}}"#;
/// Offset of the list of containers in a pod's record.
const CONTAINERS: u32 = 52;
const CONTAINER_COUNT: u32 = 56;

/// Behaviour of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluation {
    /// It sets nothing.
    Idles,
    /// It traps from this call of an instance on.
    TrapsFrom(u32),
    /// It never ends.
    Loops,
    /// It saves its name as state, each time.
    Saves,
    /// It sets these on the first container of the last pod that it received; it needs the grant `cpu-weight`.
    Weighs { weight: Option<u32>, idle: Option<bool> },
    /// It keeps the memory of that container on this NUMA node; it needs the grant `cpuset`.
    StaysOn { node: u32 },
}

/// Writes a module with this name; returns its file.
pub(crate) fn write(folder: &Path, name: &str, evaluation: Evaluation) -> PathBuf {
    let file = folder.join(format!("{name}.wasm"));
    std::fs::write(&file, component(name, evaluation)).unwrap();
    file
}

fn component(name: &str, evaluation: Evaluation) -> Vec<u8> {
    let work = match evaluation {
        Evaluation::Idles => String::new(),
        Evaluation::TrapsFrom(call) => {
            format!("(if (i32.ge_u (global.get $calls) (i32.const {call})) (then unreachable))")
        }
        Evaluation::Loops => "(loop $again (br $again))".to_owned(),
        Evaluation::Saves => {
            format!("(call $save (i32.const {STRINGS}) (i32.const {}) (i32.const {ANSWER}))", name.len())
        }
        Evaluation::Weighs { weight, idle } => weighs(weight, idle),
        Evaluation::StaysOn { node } => stays_on(node),
    };
    let imports = match evaluation {
        Evaluation::Saves => {
            format!(r#"(import "qosm:policy/state@{}" "save" (func $save (param i32 i32 i32)))"#, version())
        }
        Evaluation::Weighs { .. } => weight_imports(),
        Evaluation::StaysOn { .. } => cpuset_imports(),
        Evaluation::Idles | Evaluation::TrapsFrom(_) | Evaluation::Loops => String::new(),
    };
    let text = format!(
        r#"(module
            {imports}
            (global $container (mut i32) (i32.const -1))
            (memory (export "memory") 2)
            (global $calls (mut i32) (i32.const 0))
            (global $heap (mut i32) (i32.const 65536))
            (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
                (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
                (global.set $heap (i32.add (local.get $at) (local.get $size)))
                (local.get $at))
            (func $describe (result i32) (i32.const {DESCRIPTION}))
            (func $configure (param i32 i32) (result i32) (i32.const {OK}))
            (func $pods (param $at i32) (param $count i32) (param i32) (param $gone i32) (result i32)
                (if (local.get $gone) (then (global.set $container (i32.const -1))))
                (if (local.get $count) (then (if (i32.load offset={CONTAINER_COUNT} (local.get $at)) (then
                    (global.set $container (i32.load (i32.load offset={CONTAINERS} (local.get $at))))))))
                (i32.const {OK}))
            (func $evaluate (param i64 i32 i32 i32) (result i32)
                (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
                {work}
                (i32.const {OK}))
            (func $start_over (param i32) (global.set $heap (i32.const 65536)))
            {}
            {})"#,
        exports(),
        description(name),
    );
    let mut core = wat::parse_str(&text).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", CONTRACT).unwrap();
    let world = resolve.select_world(&[package], Some("policy")).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&core).unwrap().encode().unwrap()
}

fn version() -> &'static str {
    CONTRACT.lines().find_map(|line| line.strip_prefix("package qosm:policy@")).unwrap().trim_end_matches(';')
}

fn weight_imports() -> String {
    let interface = format!("qosm:policy/cpu-weight@{}", version());
    format!(
        r#"(import "{interface}" "set-weight" (func $set_weight (param i32 i32 i32 i32 i32)))
           (import "{interface}" "set-idle" (func $set_idle (param i32 i32 i32 i32)))"#
    )
}

fn cpuset_imports() -> String {
    let interface = format!("qosm:policy/cpuset@{}", version());
    format!(r#"(import "{interface}" "set-memory-nodes" (func $set_nodes (param i32 i32 i32 i32 i32)))"#)
}

/// The call of the import, with a list of one and an empty reason; skipped before there is a container.
fn stays_on(node: u32) -> String {
    format!(
        "(if (i32.ge_s (global.get $container) (i32.const 0)) (then
            (i32.store (i32.const {NODES}) (i32.const {node}))
            (call $set_nodes (global.get $container) (i32.const {NODES}) (i32.const 1) (i32.const 0) (i32.const 0))))"
    )
}

/// The calls of the imports, with an empty reason; skipped before there is a container.
fn weighs(weight: Option<u32>, idle: Option<bool>) -> String {
    let mut calls = String::new();
    if let Some(weight) = weight {
        // A target is a case and an id: 2 is the container.
        let target = "(i32.const 2) (global.get $container)";
        write!(calls, "(call $set_weight {target} (i32.const {weight}) (i32.const 0) (i32.const 0))").unwrap();
    }
    if let Some(idle) = idle {
        let idle = u32::from(idle);
        write!(calls, "(call $set_idle (global.get $container) (i32.const {idle}) (i32.const 0) (i32.const 0))")
            .unwrap();
    }
    format!("(if (i32.ge_s (global.get $container) (i32.const 0)) (then {calls}))")
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

/// The record in the layout of the canonical ABI: three strings, no protocol, a schema, one evaluation per second.
fn description(name: &str) -> String {
    let mut strings = Vec::new();
    let mut record = Vec::new();
    let mut text = |record: &mut Vec<u8>, text: &str| {
        record.extend((STRINGS + u32::try_from(strings.len()).unwrap()).to_le_bytes());
        record.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        strings.extend(text.as_bytes());
    };
    for field in [name, "0.1.0", "Does nothing, or fails at it."] {
        text(&mut record, field);
    }
    record.resize(SCHEMA, 0);
    record.extend(1_u32.to_le_bytes());
    text(&mut record, TAKES);
    assert_eq!(record.len(), INTERVAL);
    record.extend(1000_u32.to_le_bytes());
    let data = |at: u32, bytes: &[u8]| {
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!("(data (i32.const {at}) \"{escaped}\")\n")
    };
    data(DESCRIPTION, &record) + &data(STRINGS, &strings)
}
