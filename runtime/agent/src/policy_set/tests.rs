//! Tests of what a new agent runs of a PolicyModule that an earlier agent applied.

use std::path::Path;
use std::sync::mpsc;

use cap_std::ambient_authority;
use serde_json::{Value, json};

use super::*;
use crate::policies::tests::guest::{Evaluation, component};

/// A loader on the state of earlier ones. The module is in its cache, so that no resolution waits for a compiler.
fn loader(folder: &Path, engine: &Engine, wasm: &[u8]) -> ModuleLoader {
    let open = || Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
    let cache = ModuleCache::open(open()).unwrap();
    engine.load(wasm, Some(&cache), &Compiler::InProcess).unwrap();
    let (events, _) = mpsc::channel();
    ModuleLoader::new(LoaderOptions {
        engine: engine.clone(),
        entries: Vec::new(),
        default_modules: folder.to_path_buf(),
        cache,
        compiler: Compiler::InProcess,
        state: open(),
        fetcher: None,
        events,
    })
}

fn desired(generation: i64, spec: &Value) -> Desired {
    let metadata = json!({"name": "weights", "uid": "1", "generation": generation});
    let module = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let node = Node { name: "here".into(), ..Node::default() };
    Desired { modules: vec![module], unread: BTreeSet::new(), node }
}

#[test]
fn a_grant_that_was_removed_while_no_agent_ran_ends_the_policy_at_the_start() {
    let (folder, engine) = (tempfile::tempdir().unwrap(), Engine::new().unwrap());
    let wasm = component("weights", Evaluation::Weighs(7));
    let path = folder.path().join("weights.wasm");
    std::fs::write(&path, &wasm).unwrap();
    let (there, gone) = (format!("file://{}", path.display()), "file:///missing.wasm");

    let first = desired(1, &json!({"module": there, "grants": ["node", "cpu-weight"]}));
    let set = loader(folder.path(), &engine, &wasm).resolve(&first);
    assert_eq!(set.policies.len(), 1, "{:?}", set.load_failed);

    let kept = desired(2, &json!({"module": gone, "grants": ["cpu-weight"]}));
    let set = loader(folder.path(), &engine, &wasm).resolve(&kept);
    let fallbacks: Vec<_> = set.policies.iter().map(|policy| (policy.generation, policy.is_fallback)).collect();
    assert_eq!(fallbacks, [(Some(1), true)], "{:?}", set.load_failed);

    let removed = desired(3, &json!({"module": gone, "grants": ["node"]}));
    let set = loader(folder.path(), &engine, &wasm).resolve(&removed);
    assert!(set.policies.is_empty(), "it runs with a grant that was removed");
    let [failed] = set.load_failed.as_slice() else { panic!("{:?}", set.load_failed) };
    assert!(failed.error.contains("/missing.wasm"), "{}", failed.error);
}
