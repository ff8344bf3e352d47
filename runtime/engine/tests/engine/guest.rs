//! Guests for the tests: core modules in WebAssembly text, wrapped into components as toolchains do.
//!
//! A guest is written as the fields of a core module. The prelude adds what the guest does not define: a memory, an
//! allocator that is reset after each call, and default exports. Addresses below 65536 belong to the guest:
//!
//! | from | what |
//! | --- | --- |
//! | 16 | the result `ok`, 12 bytes of zeros |
//! | 1024 | the record that `describe` returns |
//! | 1536 | the text of `protocol.defaults`, `{}` |
//! | 4096 | free for the guest |

use std::fmt::Write;
use std::path::{Path, PathBuf};

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The contract of this version.
pub(crate) fn contract() -> String {
    std::fs::read_to_string(manifest_dir().join("../../sdk/wit/policy.wit")).unwrap()
}

pub(crate) fn manifest_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// A component from these fields and the prelude.
pub(crate) fn component(fields: &str) -> Vec<u8> {
    component_for(&contract(), fields)
}

/// Like [`component`], against another contract.
pub(crate) fn component_for(wit: &str, fields: &str) -> Vec<u8> {
    let version = wit.lines().find_map(|line| line.strip_prefix("package qosm:policy@")).unwrap().trim_end_matches(';');
    let text = format!("(module\n{fields}\n{})", prelude(fields)).replace("@0.1.0", &format!("@{version}"));
    encode(wit, &text)
}

/// A component from exactly this core module.
pub(crate) fn encode(wit: &str, text: &str) -> Vec<u8> {
    let mut core = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("policy")).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&core).unwrap().encode().unwrap()
}

/// A file below `tests/`.
pub(crate) fn file(path: &str) -> String {
    std::fs::read_to_string(manifest_dir().join("tests").join(path)).unwrap()
}

/// The guest that uses most of the contract; see its source.
pub(crate) fn worker() -> Vec<u8> {
    component(&file("guests/worker.wat"))
}

fn prelude(fields: &str) -> String {
    let mut prelude = String::new();
    let mut add = |name: &str, text: &str| {
        if !fields.contains(name) {
            prelude.push_str(text);
        }
    };
    add("(memory $memory", "(memory $memory 16)\n");
    add(
        "(func $realloc",
        "(func $realloc (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
            (global.set $heap (i32.add (local.get $at) (local.get $size)))
            (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))) (then unreachable))
            (memory.copy (local.get $at) (local.get $old) (local.get $old_size))
            (local.get $at))\n",
    );
    add("(func $describe", "(func $describe (result i32) (i32.const 1024))\n");
    add("(func $configure", "(func $configure (param i32 i32) (result i32) (i32.const 16))\n");
    add("(func $pods", "(func $pods (param i32 i32 i32 i32) (result i32) (i32.const 16))\n");
    add("(func $evaluate", "(func $evaluate (param i64 i32 i32 i32) (result i32) (i32.const 16))\n");
    add("(func $start_over", "(func $start_over (param i32) (global.set $heap (i32.const 65536)))\n");
    prelude.push_str("(global $heap (mut i32) (i32.const 65536))\n");
    prelude.push_str("(export \"memory\" (memory $memory))\n(export \"cabi_realloc\" (func $realloc))\n");
    for export in ["describe", "configure", "pods", "evaluate"] {
        let name = format!("qosm:policy/lifecycle@0.1.0#{export}");
        writeln!(prelude, "(export \"{name}\" (func ${export}))").unwrap();
        writeln!(prelude, "(export \"cabi_post_{name}\" (func $start_over))").unwrap();
    }
    prelude.push_str(&description());
    prelude
}

/// The record that `describe` returns, in the layout of the canonical ABI.
fn description() -> String {
    const STRINGS: u32 = 1280;
    const DEFAULTS: u32 = 1536;
    let mut strings = Vec::new();
    let mut record = Vec::new();
    let mut text = |record: &mut Vec<u8>, text: &str| {
        record.extend((STRINGS + u32::try_from(strings.len()).unwrap()).to_le_bytes());
        record.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        strings.extend(text.as_bytes());
    };
    let word = |record: &mut Vec<u8>, word: u32| record.extend(word.to_le_bytes());
    text(&mut record, "worker");
    text(&mut record, "0.1.0");
    text(&mut record, "Does what the tests ask for.");
    // protocol: some
    word(&mut record, 1);
    // annotation-keys: none
    word(&mut record, 0);
    word(&mut record, 0);
    // config-map-key: some
    word(&mut record, 1);
    text(&mut record, "worker-config");
    // class-field, namespace-list-key: none
    record.extend([0; 24]);
    word(&mut record, DEFAULTS);
    word(&mut record, 2);
    // presets: none
    word(&mut record, 0);
    word(&mut record, 0);
    text(&mut record, r#"{"properties":{}}"#);
    // node-only-fields, config-schema: none
    record.extend([0; 20]);
    word(&mut record, 1000);
    assert_eq!(record.len(), 120);
    let mut data = String::new();
    for (at, bytes) in [(1024, &record[..]), (STRINGS, &strings), (DEFAULTS, b"{}")] {
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        writeln!(data, "(data (i32.const {at}) \"{escaped}\")").unwrap();
    }
    data
}
