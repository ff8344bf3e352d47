//! Blobs on another host, and mirrors.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qosm_registry::RegistryError;
use tokio::net::TcpListener;

use crate::artefact::{Artefact, Key, noise};
use crate::fault::Fault;
use crate::node::{Node, message};
use crate::registry::{Login, Registry};

fn policy() -> Artefact {
    Artefact::policy(&noise(8, 1000))
}

/// A registry, its mirror, and a node that uses both.
async fn mirrored() -> (Registry, Registry, Node, String) {
    let (origin, mirror) = (Registry::start().await, Registry::start().await);
    origin.put("demo", "1", &policy());
    let mut node = Node::beside(&[&origin, &mirror]);
    node.host(&origin).mirrors = vec![format!("{}/copies/of", mirror.host())];
    let reference = origin.named("demo:1");
    (origin, mirror, node, reference)
}

#[tokio::test]
async fn a_blob_that_lies_elsewhere_is_fetched_there_without_the_password() {
    let (registry, shop) = (Registry::start().await, Registry::start().await);
    registry.put("demo", "1", &policy());
    shop.put("demo", "1", &policy());
    for login in [
        Login::Basic("joe", "secret"),
        Login::Token { realm: "http://HOST/token".to_owned(), account: Some(("joe", "secret")) },
    ] {
        let mut node = Node::beside(&[&registry]);
        let config = node.folder().join("config.json");
        let auth = STANDARD.encode("joe:secret");
        fs::write(&config, format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.host())).unwrap();
        node.settings.credentials = vec![config];
        registry.admit(login);
        let part = policy().module_path();
        registry.wrong(&part, 1, Fault::redirect(format!("http://{}/v2/demo/{part}?signed=yes", shop.host())));
        shop.forget();
        node.check_pull(&registry.named("demo:1"), &policy()).await;
        let there = shop.seen();
        assert_eq!(there.len(), 1, "{there:?}");
        assert_eq!((there[0].path.contains("signed=yes"), there[0].authorization.clone()), (true, None));
    }
}

#[tokio::test]
async fn redirects_that_lead_nowhere_are_errors() {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    let part = policy().module_path();
    registry.wrong(&part, usize::MAX, Fault::redirect(format!("/v2/demo/{part}")));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error:?}");
    assert!(message(&error).contains("more than five redirects"), "{}", message(&error));
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_the_registry_itself_not_at_all() {
    let (origin, mirror, node, reference) = mirrored().await;
    mirror.put("copies/of/demo", "1", &policy());
    node.check_pull(&reference, &policy()).await;
    assert_eq!(origin.seen().len(), 0);
}

#[tokio::test]
async fn where_a_mirror_is_away_or_has_it_not_the_next_is_asked() {
    let (_origin, mirror, mut node, reference) = mirrored().await;
    node.check_pull(&reference, &policy()).await;
    assert!(!mirror.gets("copies/of/demo/manifests/").is_empty());

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    node.settings.say(&gone, true, None);
    node.settings.hosts.iter_mut().for_each(|host| host.mirrors.retain(|_| false));
    let origin = reference.split('/').next().unwrap();
    node.settings.hosts.iter_mut().find(|host| host.registry == origin).unwrap().mirrors = vec![gone];
    fs::remove_dir_all(node.store_path()).unwrap();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_blob_that_a_mirror_left_behind_comes_from_the_registry_itself() {
    let (origin, mirror, node, reference) = mirrored().await;
    mirror.put("copies/of/demo", "1", &Artefact { blobs: Vec::new(), ..policy() });
    node.check_pull(&reference, &policy()).await;
    assert!(origin.gets("manifests/").is_empty() && origin.gets("blobs/").len() == 2);
}

#[tokio::test]
async fn a_mirror_that_fails_after_the_manifest_is_left_for_the_registry_itself() {
    let (origin, mirror, mut node, reference) = mirrored().await;
    mirror.put("copies/of/demo", "1", &policy());
    mirror.wrong("blobs/", usize::MAX, Fault::status(403));
    node.check_pull(&reference, &policy()).await;
    assert_eq!(origin.gets("blobs/").len(), 2);

    let key = Key::new("release", 1);
    origin.put("demo", &format!("sha256-{}.sig", policy().digest().hex()), &key.legacy(policy().digest()));
    node.trust(vec![key.rule(&origin.named("demo"))]);
    mirror.wrong("referrers/", usize::MAX, Fault::status(403));
    mirror.wrong("sha256-", usize::MAX, Fault::status(403));
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn signatures_that_a_mirror_left_behind_are_asked_for_at_the_registry_itself() {
    let (origin, mirror, mut node, reference) = mirrored().await;
    mirror.put("copies/of/demo", "1", &policy());
    let key = Key::new("release", 1);
    node.trust(vec![key.rule(&origin.named("demo"))]);
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
    origin.put("demo", &format!("sha256-{}.sig", policy().digest().hex()), &key.legacy(policy().digest()));
    node.check_pull(&reference, &policy()).await;
    assert!(origin.gets(&policy().module_path()).is_empty(), "the module came from the mirror");
}

#[tokio::test]
async fn a_mirror_without_signatures_does_not_hide_that_the_registry_itself_does_not_answer() {
    let (origin, mirror, mut node, reference) = mirrored().await;
    mirror.put("copies/of/demo", "1", &policy());
    node.trust(vec![Key::new("release", 1).rule(&origin.named("demo"))]);
    origin.wrong("sha256-", usize::MAX, Fault::status(500));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Answer { status: 500, .. }), "{error:?}");
}
