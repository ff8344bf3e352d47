//! Responses that are no artefact: errors, empty, too large, too slow.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qosm_registry::{Location, Reference, RegistryError};
use tokio::net::TcpListener;

use crate::artefact::{Artefact, Key, noise};
use crate::fault::Fault;
use crate::node::{Node, message};
use crate::registry::Registry;

fn policy() -> Artefact {
    Artefact::policy(&noise(2, 1000))
}

async fn beside() -> (Registry, Node, String) {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    (registry, node, reference)
}

#[tokio::test]
async fn a_missing_object_is_named_by_its_kind() {
    let (registry, node, reference) = beside().await;
    let missing = node.refusal(&registry.named("demo:2")).await;
    assert!(matches!(missing, RegistryError::NotFound { kind: "tag", .. }), "{missing:?}");
    assert!(message(&missing).ends_with(&format!("demo:2: {} has no such tag", registry.host())), "{missing}");
    registry.wrong(&policy().module_path(), 1, Fault::status(404));
    let blob = node.refusal(&reference).await;
    assert!(matches!(blob, RegistryError::NotFound { kind: "blob", .. }), "{blob:?}");
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_registry_that_wants_to_be_asked_later_is_asked_then() {
    for part in ["manifests/", "blobs/"] {
        let (registry, node, reference) = beside().await;
        registry.wrong(part, 1, Fault::later(1));
        let begin = Instant::now();
        node.check_pull(&reference, &policy()).await;
        assert!(begin.elapsed() >= Duration::from_secs(1), "{part}: after {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_long_retry_after_is_reported_at_once() {
    let (registry, node, reference) = beside().await;
    registry.wrong("manifests/", usize::MAX, Fault::later(3600));
    let error = node.refusal(&reference).await;
    let RegistryError::Answer { status: 429, retry_after: Some(wait), .. } = error else { panic!("{error:?}") };
    assert_eq!(wait, Duration::from_secs(3600));
    assert!(message(&error).contains("3600 s"), "when to try again: {error}");
    assert_eq!(registry.gets("manifests/").len(), 1);
}

#[tokio::test]
async fn a_transient_error_is_not_reported() {
    for part in ["/v2/", "manifests/", "blobs/"] {
        let (registry, node, reference) = beside().await;
        registry.wrong(part, 2, Fault::status(500));
        node.check_pull(&reference, &policy()).await;
    }
}

#[tokio::test]
async fn a_lasting_error_quotes_the_registry() {
    let (registry, node, reference) = beside().await;
    let body = r#"{"errors":[{"code":"UNKNOWN","message":"the disk is on fire"}]}"#.to_owned();
    registry.wrong("manifests/", usize::MAX, Fault::Answer { status: 500, headers: Vec::new(), body });
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Answer { status: 500, .. }) && error.is_transient(), "{error:?}");
    assert!(message(&error).contains("answered HTTP 500: the disk is on fire"), "{error}");
    assert_eq!(registry.gets("manifests/").len(), 5);
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_registry_that_is_away_is_unreachable() {
    let (registry, mut node, _) = beside().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    node.settings.say(&gone, true, None);
    let error = node.refusal(&format!("{gone}/demo:1")).await;
    assert!(matches!(error, RegistryError::Unreachable { .. }) && error.is_transient(), "{error:?}");
    assert!(message(&error).contains("refused"), "{}", message(&error));
    node.check_pull(&registry.named("demo:1"), &policy()).await;
}

#[tokio::test]
async fn a_manifest_of_any_length_is_not_read_to_its_end() {
    for is_announced in [false, true] {
        let (registry, node, reference) = beside().await;
        let (endless, taken) = Fault::endless(200, is_announced);
        registry.wrong("manifests/", usize::MAX, endless);
        let error = node.refusal(&reference).await;
        assert!(matches!(error, RegistryError::TooLarge { most: 4_194_304, .. }), "{error:?}");
        // Includes what is in the sockets' buffers.
        let taken = taken.load(Ordering::Relaxed) >> 20;
        assert!(taken < 20, "{taken} MiB were taken");
        registry.mend();
        node.check_pull(&reference, &policy()).await;
    }
}

#[tokio::test]
async fn an_error_of_any_length_is_not_read_to_its_end() {
    let (registry, node, reference) = beside().await;
    let (endless, taken) = Fault::endless(418, false);
    registry.wrong("manifests/", usize::MAX, endless);
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Answer { status: 418, .. }), "{error:?}");
    assert!(taken.load(Ordering::Relaxed) >> 20 < 16);
}

#[tokio::test]
async fn a_page_for_people_is_not_taken_for_a_manifest() {
    let (registry, node, reference) = beside().await;
    let body = "<html>Welcome to our network! Accept the terms.</html>".to_owned();
    registry.wrong("manifests/", usize::MAX, Fault::Answer { status: 200, headers: Vec::new(), body });
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::InvalidArtifact { .. }), "{error:?}");
    assert!(message(&error).contains("its manifest is not JSON"), "{error}");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_registry_that_sends_ever_so_slowly_is_given_up() {
    let (registry, mut node, reference) = beside().await;
    registry.wrong("blobs/", usize::MAX, Fault::Slow);
    node.settings.limits.pull_seconds = 2;
    let begin = Instant::now();
    let error = node.refusal(&reference).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(matches!(error, RegistryError::TooSlow { .. }) && error.is_transient(), "{error:?}");
    assert!(message(&error).contains("registries.limits.pullSeconds"), "{error}");
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn versions_are_listed_from_all_pages_without_the_tags_of_signatures() {
    let (registry, node, _) = beside().await;
    let mut tags = BTreeSet::from(["1".to_owned()]);
    for number in 10..20 {
        registry.put("demo", &format!("1.{number}"), &policy());
        tags.insert(format!("1.{number}"));
    }
    let signature = Key::new("release", 1).legacy(policy().digest());
    registry.put("demo", &format!("sha256-{}.sig", policy().digest().hex()), &signature);
    registry.page_by(3);
    let repository = Location::Registry(Reference::parse_name(&registry.named("demo")).unwrap());
    let versions = node.store().versions(&repository).await.unwrap();
    assert_eq!(versions.into_iter().collect::<BTreeSet<_>>(), tags);
    assert_eq!(registry.gets("tags/list").len(), 4);
}

#[tokio::test]
async fn a_list_of_tags_that_leads_back_to_itself_comes_to_an_end() {
    let (registry, node, _) = beside().await;
    let link = vec![("link", "</v2/demo/tags/list?n=1&last=1>; rel=\"next\"".to_owned())];
    registry.wrong(
        "tags/list",
        usize::MAX,
        Fault::Answer { status: 200, headers: link, body: r#"{"tags":["1"]}"#.to_owned() },
    );
    let repository = Location::Registry(Reference::parse_name(&registry.named("demo")).unwrap());
    // Whatever the result, the call must return.
    drop(node.store().versions(&repository).await);
    assert!(registry.gets("tags/list").len() < 100);
}
