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
fn after_a_rollback_and_a_restart_the_specification_that_worked_runs_as_a_whole() {
    let (folder, engine) = (tempfile::tempdir().unwrap(), Engine::new().unwrap());
    let path = folder.path().join("weights.wasm");
    let with = |weight| {
        let wasm = component("weights", Evaluation::Weighs(weight));
        std::fs::write(&path, &wasm).unwrap();
        wasm
    };
    let spec = |priority| json!({"module": format!("file://{}", path.display()), "priority": priority, "grants": ["node", "cpu-weight"]});
    let wasm = with(7);
    let mut first = loader(folder.path(), &engine, &wasm);
    let works = first.resolve(&desired(1, &spec(1))).policies.remove(0).policy;
    let running = Running { policy: works, before: None, is_verified: true };
    first.note_running([("weights".to_owned(), running)].into());
    let fails = first.resolve(&desired(2, &spec(2))).policies.remove(0).policy;
    assert_eq!(fails.config.priority, 2);
    let digest = *fails.module.digest();
    first.roll_back(RolledBack { entry: fails.config, digest, why: "it trapped".into() });

    let set = loader(folder.path(), &engine, &wasm).resolve(&desired(2, &spec(2)));
    let [kept] = set.policies.as_slice() else { panic!("{:?}", set.load_failed) };
    assert_eq!((kept.generation, kept.is_fallback, kept.policy.config.priority), (Some(1), true, 1));
    assert!(kept.pending_update.as_ref().is_some_and(|pending| pending.why.contains("it trapped")));

    // An operator pauses the rollout: the failure is still to be seen.
    let mut paused = spec(2);
    paused["rollout"] = json!({"paused": true});
    let set = loader(folder.path(), &engine, &wasm).resolve(&desired(3, &paused));
    let [kept] = set.policies.as_slice() else { panic!("{:?}", set.load_failed) };
    assert_eq!((kept.generation, kept.policy.config.priority), (Some(1), 1));
    assert!(kept.pending_update.as_ref().is_some_and(|pending| pending.why.contains("it trapped")));

    // Once it works, there is no way back.
    let mut third = loader(folder.path(), &engine, &wasm);
    let works = third.resolve(&desired(3, &spec(3))).policies.remove(0).policy;
    let running = Running { policy: works.clone(), before: None, is_verified: true };
    third.note_running([("weights".to_owned(), running)].into());
    third.roll_back(RolledBack { entry: works.config, digest, why: "much later".into() });
    assert_eq!(third.last_good.applied["weights"].generation, 3);
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

    // What it may set besides its own pods is no import that it could lack.
    let (folder, with) = (tempfile::tempdir().unwrap(), json!(["node", "cpu-weight", "tiers"]));
    loader(folder.path(), &engine, &wasm).resolve(&desired(1, &json!({"module": there, "grants": with})));
    let narrowed = desired(2, &json!({"module": gone, "grants": ["node", "cpu-weight"]}));
    let set = loader(folder.path(), &engine, &wasm).resolve(&narrowed);
    assert!(set.policies.is_empty(), "it reaches the tiers without the grant");

    let removed = desired(3, &json!({"module": gone, "grants": ["node"]}));
    let set = loader(folder.path(), &engine, &wasm).resolve(&removed);
    assert!(set.policies.is_empty(), "it runs with a grant that was removed");
    let [failed] = set.load_failed.as_slice() else { panic!("{:?}", set.load_failed) };
    assert!(failed.error.contains("/missing.wasm"), "{}", failed.error);
}
