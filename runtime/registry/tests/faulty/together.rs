//! Concurrent pulls into one store, and interrupted pulls.

use std::time::Duration;

use crate::artefact::{Artefact, noise};
use crate::fault::Fault;
use crate::node::{Node, location};
use crate::registry::Registry;

async fn beside(policy: &Artefact) -> (Registry, Node, String) {
    let registry = Registry::start().await;
    registry.put("demo", "1", policy);
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    (registry, node, reference)
}

/// Waits until this much of a blob has arrived.
async fn until_part(node: &Node, bytes: u64) {
    let ingest = node.store_path().join("ingest");
    loop {
        let parts = std::fs::read_dir(&ingest).into_iter().flatten();
        let mut parts = parts.filter_map(|entry| entry.unwrap().metadata().ok());
        if parts.any(|part| part.len() == bytes) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn two_that_pull_the_same_fetch_it_once() {
    let policy = Artefact::policy(&noise(14, 5));
    let (registry, node, reference) = beside(&policy).await;
    registry.wrong(&policy.module_path(), usize::MAX, Fault::Slow);
    let (one, other) = tokio::join!(node.pull(&reference), node.pull(&reference));
    assert!(one.unwrap().module == policy.module() && other.unwrap().module == policy.module());
    assert_eq!(registry.gets("blobs/").len(), 2, "the module and the config");
    node.check_pull(&reference, &policy).await;
}

#[tokio::test]
async fn a_pull_that_is_broken_off_leaves_its_part_to_the_next() {
    let policy = Artefact::policy(&noise(15, 300_000));
    let (registry, node, reference) = beside(&policy).await;
    registry.wrong(&policy.module_path(), 1, Fault::Stall(100_000));
    tokio::select! {
        pulled = node.pull(&reference) => panic!("{pulled:?}"),
        () = until_part(&node, 100_000) => {}
    }
    assert!(node.stored(&reference).unwrap().is_none());
    node.check_pull(&reference, &policy).await;
    let ranges: Vec<_> = registry.gets(&policy.module_path()).into_iter().map(|seen| seen.range).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".to_owned())]);
}

#[tokio::test]
async fn a_waiting_fetch_continues_where_another_was_aborted() {
    let policy = Artefact::policy(&noise(16, 300_000));
    let (registry, node, reference) = beside(&policy).await;
    let part = policy.module_path();
    registry.wrong(&part, 1, Fault::Stall(100_000));
    let (store, place) = (node.store(), location(&reference));
    let mut no_progress = ();
    let mut second = Box::pin(store.pull(&place, None, false, &mut no_progress));
    tokio::select! {
        pulled = node.pull(&reference) => panic!("{pulled:?}"),
        () = async {
            until_part(&node, 100_000).await;
            let waits = tokio::time::timeout(Duration::from_millis(500), &mut second).await;
            assert!(waits.is_err(), "{waits:?}");
        } => {}
    }
    assert!(second.await.unwrap().module == policy.module());
    let ranges: Vec<_> = registry.gets(&part).into_iter().map(|seen| seen.range).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".to_owned())]);
}
