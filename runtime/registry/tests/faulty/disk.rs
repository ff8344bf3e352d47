//! A full disk, simulated by `/dev/full`: it refuses each byte in the same way, and needs no privileges.

use std::fs;
use std::os::unix::fs::symlink;

use qosm_model::digest::Digest;
use qosm_registry::RegistryError;

use crate::artefact::{Artefact, noise};
use crate::node::{Node, message};
use crate::registry::Registry;

#[tokio::test]
async fn a_full_disk_names_the_file_and_is_no_error_once_there_is_room() {
    let policy = Artefact::policy(&noise(17, 300_000));
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy);
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    drop(node.store());
    let part = node.store_path().join("ingest").join(Digest::of(policy.module()).hex());
    symlink("/dev/full", &part).unwrap();
    let error = node.pull(&reference).await.unwrap_err();
    let RegistryError::File { path, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*path, part);
    assert!(message(&error).contains("No space left on device"), "{}", message(&error));
    assert_eq!(registry.gets(&policy.module_path()).len(), 1, "it is not tried again");
    assert!(node.stored(&reference).unwrap().is_none());
    fs::remove_file(&part).unwrap();
    node.check_pull(&reference, &policy).await;
}
