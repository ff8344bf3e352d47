//! Blobs that arrive in parts, too short, too long, or with wrong bytes.

use qosm_model::digest::Digest;
use qosm_registry::RegistryError;

use crate::artefact::{Artefact, noise};
use crate::fault::Fault;
use crate::node::{Node, message};
use crate::registry::Registry;

const SIZE: usize = 300_000;

fn policy() -> Artefact {
    Artefact::policy(&noise(3, SIZE))
}

async fn beside() -> (Registry, Node, String) {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    (registry, node, reference)
}

fn ranges(registry: &Registry) -> Vec<Option<String>> {
    registry.gets(&policy().module_path()).into_iter().map(|seen| seen.range).collect()
}

#[tokio::test]
async fn a_connection_that_breaks_is_gone_on_with_where_it_broke() {
    let (registry, node, reference) = beside().await;
    let part = policy().module_path();
    registry.wrong(&part, 1, Fault::Cut(100_000));
    registry.wrong(&part, 1, Fault::Cut(50_000));
    node.check_pull(&reference, &policy()).await;
    let asked = [None, Some("bytes=100000-".to_owned()), Some("bytes=150000-".to_owned())];
    assert_eq!(ranges(&registry), asked);
}

#[tokio::test]
async fn a_registry_that_always_sends_the_whole_is_begun_with_anew() {
    let (registry, node, reference) = beside().await;
    let part = policy().module_path();
    registry.wrong(&part, 1, Fault::Cut(100_000));
    registry.wrong(&part, usize::MAX, Fault::Whole);
    node.check_pull(&reference, &policy()).await;
    assert_eq!(ranges(&registry), [None, Some("bytes=100000-".to_owned()), None]);
}

#[tokio::test]
async fn other_bytes_are_reported_and_not_kept() {
    let (registry, node, reference) = beside().await;
    registry.wrong(&policy().module_path(), usize::MAX, Fault::Bytes(noise(4, SIZE)));
    let error = node.refusal(&reference).await;
    let RegistryError::Digest { expected, found, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*expected, *found), (Digest::of(policy().module()), Digest::of(&noise(4, SIZE))));
    assert!(message(&error).contains("changed on the way or in storage"), "{error}");
    assert!(node.parts().is_empty(), "{:?}", node.parts());
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_config_with_other_bytes_is_reported_and_not_kept() {
    let (registry, node, reference) = beside().await;
    let size = policy().blobs[1].len();
    registry.wrong(&format!("blobs/{}", Digest::of(&policy().blobs[1])), usize::MAX, Fault::Bytes(noise(4, size)));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Digest { .. }), "{error:?}");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_part_with_other_bytes_does_not_spoil_the_next_pull() {
    let (registry, node, reference) = beside().await;
    registry.wrong(&policy().module_path(), 1, Fault::Bytes(noise(4, SIZE / 2)));
    registry.wrong(&policy().module_path(), usize::MAX, Fault::status(403));
    node.refusal(&reference).await;
    assert_eq!(node.parts().len(), 1, "it was to be gone on with");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn more_bytes_than_were_announced_are_not_taken() {
    let (registry, node, reference) = beside().await;
    let mut longer = policy().module().to_vec();
    longer.extend(noise(5, 10));
    registry.wrong(&policy().module_path(), usize::MAX, Fault::Bytes(longer));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::TooLarge { most: 300_000, .. }), "{error:?}");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_blob_that_stays_too_short_is_reported_with_both_lengths() {
    let (registry, node, reference) = beside().await;
    registry.wrong(&policy().module_path(), usize::MAX, Fault::Short(100_000));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Truncated { expected: 300_000, found: 100_000, .. }), "{error:?}");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_manifest_that_is_not_the_pinned_one_is_refused() {
    let (registry, node, _) = beside().await;
    let pinned = registry.named(&format!("demo@{}", policy().digest()));
    let other = Artefact::policy(&noise(6, 10));
    registry.wrong("manifests/sha256:", usize::MAX, Fault::Bytes(other.manifest.clone()));
    let error = node.refusal(&pinned).await;
    let RegistryError::Digest { expected, found, .. } = error else { panic!("{error:?}") };
    assert_eq!((expected, found), (policy().digest(), other.digest()));
    registry.mend();
    node.check_pull(&pinned, &policy()).await;
}

#[tokio::test]
async fn a_module_above_the_limit_is_not_fetched_at_all() {
    let (registry, mut node, _) = beside().await;
    let large = Artefact::policy(&noise(7, (1 << 20) + 1));
    registry.put("demo", "large", &large);
    let reference = registry.named("demo:large");
    node.settings.limits.module_mib = 1;
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::TooLarge { kind: "module", .. }), "{error:?}");
    assert!(message(&error).contains("raise `registries.limits.moduleMiB`"), "{error}");
    assert!(registry.gets(&large.module_path()).is_empty());
    node.settings.limits.module_mib = 2;
    node.check_pull(&reference, &large).await;
}

#[tokio::test]
async fn what_was_changed_on_the_disk_is_fetched_anew() {
    let (_registry, node, reference) = beside().await;
    node.check_pull(&reference, &policy()).await;
    for digest in [Digest::of(policy().module()), policy().digest()] {
        for is_anew in [false, true] {
            let path = node.store_path().join("blobs/sha256").join(digest.hex());
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[5] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            if is_anew {
                node.pull_anew(&reference).await.unwrap();
            }
            node.check_pull(&reference, &policy()).await;
        }
    }
}
