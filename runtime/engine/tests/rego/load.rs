//! Bundles that are loaded, bundles that are not, and the reasons.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::{BundleError, Compiler, Digest, EngineError, Form, Grants, Interface, Limits, Memory, ModuleCache};
use qosm_model::alarm::Trigger;
use serde_json::json;

use crate::node::{ENGINE, Tried, chain, load, refusal};
use crate::opa;

const NOTHING: &str = "settings contains {\"log\": \"x\"}";

#[test]
fn a_bundle_describes_itself() {
    let fields = "grants: [cpu-stat, node]\nintervalMillis: 2500\nsummary: One sentence.\nconfigSchema: {type: object}\n\
                  triggers: [throttling, {pressure: {scope: node, resource: io, full: true}}]\n\
                  protocol: {annotationKeys: [example.com/tried], schema: {properties: {share: {type: number}}}, \
                  presets: [{policy: auto, values: {share: 1}}]}";
    let bundle = opa::build(&[("policy.rego", &opa::with_metadata(fields, NOTHING))]);
    let inspection = ENGINE.inspect(&bundle).unwrap();
    assert_eq!((inspection.form, inspection.digest, inspection.size), (Form::Rego, Digest::of(&bundle), bundle.len()));
    assert_eq!(inspection.imports, [Interface::Node, Interface::CpuStat]);
    let module = load(&bundle).unwrap();
    assert_eq!(module.imports().len(), 2);
    let description = ENGINE.describe(&module).unwrap();
    assert_eq!((description.name.as_str(), description.version.as_str()), ("tried", "0.1.0"));
    assert_eq!((description.summary.as_str(), description.interval_millis), ("One sentence.", 2500));
    assert_eq!(description.config_schema, Some(json!({"type": "object"})));
    let words: Vec<_> = description.triggers.iter().map(Trigger::to_string).collect();
    assert_eq!(words, ["throttling", "pressure: node io full 150000 of 1000000 us"]);
    let protocol = description.protocol.unwrap();
    assert_eq!(protocol.annotation_keys, ["example.com/tried"]);
    assert_eq!(protocol.presets[0].values.get("share"), Some(&json!(1)));
}

#[test]
fn a_title_stands_for_a_summary() {
    let module = load(&opa::policy("", NOTHING)).unwrap();
    assert_eq!(ENGINE.describe(&module).unwrap().summary, "Is tried out.");
}

#[test]
fn an_operator_grants_what_a_bundle_declares() {
    let module = load(&opa::policy("node, memory-protection", NOTHING)).unwrap();
    let grants: Grants = [Interface::Node].into_iter().collect();
    let error = ENGINE.instantiate(&module, "tried", &grants, &Limits::default(), Vec::new()).unwrap_err();
    assert!(matches!(&error, EngineError::NotGranted { missing, .. } if *missing == [Interface::MemoryProtection]));
}

#[test]
fn metadata_that_cannot_be_used_name_the_field() {
    let text = |qosm: serde_json::Value| {
        let manifest = opa::manifest_with(&qosm);
        refusal(&opa::archive(&[("policy.wasm", b"\0asm\x01\0\0\0"), (".manifest", manifest.as_bytes())]))
    };
    for (qosm, expected) in [
        (json!({"version": "0.1.0"}), "custom.qosm: missing field `name`"),
        (json!({"name": "Tried", "version": "0.1.0"}), "custom.qosm.name: `Tried` is not a name of"),
        (json!({"name": "tried", "version": "1"}), "custom.qosm.version: `1` is not a semantic version"),
        (json!({"name": "tried", "version": "0.1.0", "colour": 1}), "custom.qosm.colour: unknown field `colour`"),
        (
            json!({"name": "tried", "version": "0.1.0", "grants": ["node", "blkio"]}),
            "custom.qosm.grants[1]: `blkio` is neither an interface nor `tiers` or `all-pods`; there are",
        ),
        (
            json!({"name": "tried", "version": "0.1.0", "intervalMillis": -1}),
            "custom.qosm.intervalMillis: invalid value: integer `-1`, expected u32",
        ),
        (
            json!({"name": "tried", "version": "0.1.0", "triggers": ["throttling"]}),
            "custom.qosm.triggers[0]: `throttling` needs the interface `cpu-stat`, which `custom.qosm.grants` do not have",
        ),
        (
            json!({"name": "tried", "version": "0.1.0", "protocol": {"schema": {"properties": {}}, "annotationKeys": ["a b"]}}),
            "custom.qosm.protocol.annotationKeys[0]: `a b` is not an annotation key",
        ),
        (
            json!({"name": "tried", "version": "0.1.0", "protocol": {"schema": {}}}),
            "custom.qosm.protocol.schema: it is a schema without an object `properties`",
        ),
    ] {
        let error = text(qosm);
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
    let module = opa::archive(&[
        ("policy.wasm", b"\0asm\x01\0\0\0"),
        (
            ".manifest",
            opa::manifest_with(&json!({"name": "tried", "version": "0.1.0", "grants": ["blkio"]})).as_bytes(),
        ),
    ]);
    assert_eq!(ENGINE.inspect(&module).unwrap().unknown_imports, ["blkio"], "inspecting tells, loading refuses");
}

#[test]
fn schemas_that_no_node_takes_are_named_as_metadata_spell_them() {
    for (fields, expected) in [
        (
            "configSchema: {type: object, properties: {x: {type: whole}}}",
            "custom.qosm.configSchema: it is no JSON schema",
        ),
        (
            "protocol: {annotationKeys: [example.com/tried], schema: {properties: {x: {type: whole}}}}",
            "custom.qosm.protocol.schema: it is no JSON schema",
        ),
        (
            "protocol: {annotationKeys: [example.com/tried], schema: {properties: {x: {type: integer}}}, \
             presets: [{policy: half-speed, values: {y: 1}}]}",
            "custom.qosm.protocol.presets: half-speed: `y` is not in the schema",
        ),
    ] {
        let module = load(&opa::build(&[("policy.rego", &opa::with_metadata(fields, NOTHING))])).unwrap();
        let error = ENGINE.describe(&module).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
}

#[test]
fn an_archive_that_is_no_policy_is_told_what_it_lacks() {
    let wasm = b"\0asm\x01\0\0\0";
    let manifest = opa::manifest();
    let other = opa::manifest().replace("qosm/settings", "authz/allow");
    let silent = opa::manifest().replace("qosm\":", "other\":");
    for (members, expected) in [
        (vec![(".manifest", manifest.as_bytes())], "it holds no `policy.wasm`; build it with `opa build -t wasm`"),
        (vec![("policy.wasm", &wasm[..])], "it holds no `.manifest`"),
        (vec![("deep/policy.wasm", &wasm[..]), (".manifest", manifest.as_bytes())], "it holds no `policy.wasm`"),
        (vec![("../policy.wasm", &wasm[..]), (".manifest", manifest.as_bytes())], "it holds no `policy.wasm`"),
        (vec![("policy.wasm", &wasm[..]), ("/policy.wasm", &wasm[..])], "it holds `policy.wasm` twice"),
        (vec![("policy.wasm", &wasm[..]), (".manifest", &b"{"[..])], "its `.manifest` cannot be used: EOF"),
        (
            vec![("policy.wasm", &wasm[..]), (".manifest", other.as_bytes())],
            "it has no entrypoint `qosm/settings` but `authz/allow`; write `entrypoint: true`",
        ),
        (vec![("policy.wasm", &wasm[..]), (".manifest", silent.as_bytes())], "have no `custom.qosm`"),
        (
            vec![("policy.wasm", &wasm[..]), (".manifest", manifest.as_bytes()), ("data.json", &b"[1]"[..])],
            "its `data.json` cannot be used: it is a JSON array, not an object",
        ),
        (
            vec![("policy.wasm", &wasm[..]), (".manifest", manifest.as_bytes()), ("data.json", &b"{\"qosm\": 1}"[..])],
            "its `data.json` cannot be used: its key `qosm` is the policy's own package",
        ),
        (
            vec![("policy.wasm", &wasm[..]), (".manifest", manifest.as_bytes())],
            "its module does not speak OPA's ABI: it imports no memory",
        ),
    ] {
        let error = refusal(&opa::archive(&members));
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
    assert!(refusal(b"\x1f\x8b\x08").contains("cannot be unpacked"));
}

#[test]
fn members_may_be_named_in_each_way_that_tools_write() {
    let built = opa::policy("", NOTHING);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(built.as_slice()));
    let mut wasm = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path_bytes().ends_with(b"policy.wasm") {
            std::io::Read::read_to_end(&mut entry, &mut wasm).unwrap();
        }
    }
    let manifest = opa::manifest();
    for prefix in ["", "/", "./"] {
        let (wasm_name, manifest_name) = (format!("{prefix}policy.wasm"), format!("{prefix}.manifest"));
        let bundle = opa::archive(&[(&wasm_name, &wasm), (&manifest_name, manifest.as_bytes()), ("../../etc/x", b"x")]);
        assert_eq!(Tried::of(&bundle).evaluated().log.len(), 1, "{prefix}");
    }
}

#[test]
fn functions_that_are_not_answered_are_named_with_a_way_out() {
    let bundle = opa::policy(
        "",
        "settings contains {\"log\": x} if x := http.send({\"url\": \"http://x\", \"method\": \"get\"}).body",
    );
    let error = refusal(&bundle);
    assert!(error.contains("it calls `http.send`, which is refused, for it leaves the node"), "{error}");
    assert!(error.contains("use what `input` has"), "{error}");

    let two = opa::policy(
        "",
        "settings contains {\"log\": sprintf(\"%v\", [rand.intn(\"x\", 5)])} if uuid.rfc4122(\"x\") != \"\"",
    );
    let EngineError::Bundle { source: BundleError::Builtins(missing), .. } = load(&two).unwrap_err() else {
        panic!("it should be refused for its functions");
    };
    let names: Vec<_> = missing.iter().map(|missing| missing.name.as_str()).collect();
    assert_eq!(names, ["rand.intn", "uuid.rfc4122"]);
}

#[test]
fn a_compiled_bundle_is_kept_under_its_own_digest() {
    let home = tempfile::tempdir().unwrap();
    let cache = ModuleCache::open(Dir::open_ambient_dir(home.path(), ambient_authority()).unwrap()).unwrap();
    let bundle = opa::policy("", NOTHING);
    ENGINE.load(&bundle, Some(&cache), &Compiler::InProcess).unwrap();
    let files: Vec<_> = std::fs::read_dir(home.path().join("compiled"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.len(), 1);
    assert!(files[0].starts_with(&Digest::of(&bundle).hex()), "{files:?}");
    // The compiler does not exist, so the module must come from the cache.
    let none = Compiler::Child {
        program: "/nonexistent".into(),
        args: Vec::new(),
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    ENGINE.load(&bundle, Some(&cache), &none).unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert!(ENGINE.load(&bundle, None, &none).is_err());
}
