//! Copies from registry to folder to archive to registry, and pushes.

use std::collections::BTreeMap;
use std::fs;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qosm_model::digest::Digest;
use qosm_registry::{Artifact, Label, RegistryError, Stored, Trusted};

use crate::artefact::{Artefact, Key, noise};
use crate::fault::Fault;
use crate::node::{Node, location, message};
use crate::registry::{Login, Registry};

fn policy() -> Artefact {
    Artefact::policy(&noise(18, 100_000))
}

/// A registry with a policy that has two signatures, one in each format.
async fn signed() -> Registry {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    registry.refer("demo", policy().digest(), &Key::new("new", 1).bundle(&policy()));
    let old = Key::new("old", 2).legacy(policy().digest());
    registry.put("demo", &format!("sha256-{}.sig", policy().digest().hex()), &old);
    registry
}

/// The content of a copy without faults.
async fn copied(origin: &Registry) -> BTreeMap<String, Digest> {
    let target = Registry::start().await;
    let node = Node::beside(&[origin, &target]);
    node.copy(&origin.named("demo:1"), &target.named("demo:1")).await.unwrap();
    target.content()
}

fn artifact() -> Artifact {
    let label = Label { name: "demo".to_owned(), created: "1970-01-01T00:00:00Z".to_owned(), ..Label::default() };
    Artifact::pack(b"\0asm\x01\0\0\0".to_vec(), label).unwrap()
}

async fn push(node: &Node, to: &str) -> Result<Stored, RegistryError> {
    node.store().push(&artifact(), &location(to), &mut ()).await
}

#[tokio::test]
async fn an_artefact_and_its_signatures_arrive_by_way_of_a_folder_and_an_archive() {
    for has_api in [false, true] {
        let origin = signed().await;
        let target = if has_api { Registry::with_referrers().await } else { Registry::start().await };
        let node = Node::beside(&[&origin, &target]);
        let folder = format!("oci-layout:{}:1", node.folder().join("layout").display());
        let archive = format!("oci-layout:{}:1", node.folder().join("demo.tar").display());
        let way = [origin.named("demo:1"), folder, archive, target.named("other/name:1")];
        let mut before = None;
        // The second time nothing changes.
        for _ in 0..2 {
            for step in way.windows(2) {
                let stored = node.copy(&step[0], &step[1]).await.unwrap();
                assert_eq!((stored.digest, stored.signatures), (policy().digest(), 2), "{step:?}");
            }
            let read = |name: &str| fs::read(node.folder().join(name)).unwrap();
            let now = (target.content(), read("layout/index.json"), read("demo.tar"));
            assert!(before.is_none_or(|before| before == now), "has_api: {has_api}");
            before = Some(now);
        }
        let mut there = Node::beside(&[&target]);
        let pattern = target.named("other/name");
        let mut rule = Key::new("new", 1).rule(&pattern);
        rule.keys.extend(Key::new("old", 2).rule(&pattern).keys);
        rule.require = qosm_registry::trust::Require::All;
        there.trust(vec![rule]);
        let pulled = there.pull(&target.named("other/name:1")).await.unwrap();
        assert!(pulled.module == policy().module());
        let Trusted::Signed(good) = pulled.trusted else { panic!() };
        let mut good: Vec<_> = good.into_iter().map(|good| format!("{} {:?}", good.key, good.format)).collect();
        good.sort();
        assert_eq!(good, ["new Bundle", "old Legacy"]);
    }
}

#[tokio::test]
async fn the_same_content_is_the_same_archive_wherever_it_came_from() {
    let origin = signed().await;
    let mut archives = Vec::new();
    for ways in [&["a.tar"][..], &["folder", "b.tar"], &["c.tar", "d.tar"]] {
        let node = Node::beside(&[&origin]);
        let mut from = origin.named("demo:1");
        for name in ways {
            let to = format!("oci-layout:{}:1", node.folder().join(name).display());
            node.copy(&from, &to).await.unwrap();
            from = to;
        }
        archives.push(fs::read(node.folder().join(ways.last().unwrap())).unwrap());
    }
    assert!(
        archives.windows(2).all(|pair| pair[0] == pair[1]),
        "{:?}",
        archives.iter().map(Vec::len).collect::<Vec<_>>()
    );
    let mut names: Vec<String> = Vec::new();
    for entry in tar::Archive::new(archives[0].as_slice()).entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().display().to_string());
    }
    assert!(names.is_sorted(), "whatever order a file system lists them in: {names:?}");
}

#[tokio::test]
async fn a_copy_that_breaks_off_leaves_no_tag_and_is_done_by_the_next() {
    for (method, part) in [(Method::POST, "uploads"), (Method::PUT, "manifests/1"), (Method::PUT, "manifests/sha256")] {
        let (origin, target) = (signed().await, Registry::start().await);
        let node = Node::beside(&[&origin, &target]);
        target.wrong_to(method.clone(), part, usize::MAX, Fault::status(403));
        node.copy(&origin.named("demo:1"), &target.named("demo:1")).await.unwrap_err();
        assert!(part == "manifests/sha256" || !target.content().contains_key("1"), "{method} {part}");
        target.mend();
        node.copy(&origin.named("demo:1"), &target.named("demo:1")).await.unwrap();
        assert_eq!(target.content(), copied(&origin).await, "{method} {part}");
    }
}

#[tokio::test]
async fn pushing_twice_is_one_artefact() {
    let registry = Registry::start().await;
    let node = Node::beside(&[&registry]);
    let reference = registry.named("demo:1");
    let first = push(&node, &reference).await.unwrap();
    let content = registry.content();
    let second = push(&node, &reference).await.unwrap();
    assert_eq!((first.digest, second.digest), (artifact().digest(), artifact().digest()));
    assert_eq!(registry.content(), content);
    assert_eq!(node.pull(&reference).await.unwrap().digest, artifact().digest());
}

#[tokio::test]
async fn pushing_under_the_digest_of_another_is_refused_before_anything_is_sent() {
    let registry = Registry::start().await;
    let node = Node::beside(&[&registry]);
    let error = push(&node, &registry.named(&format!("demo@{}", policy().digest()))).await.unwrap_err();
    let RegistryError::Digest { expected, found, .. } = error else { panic!("{error:?}") };
    assert_eq!((expected, found), (policy().digest(), artifact().digest()));
    assert!(registry.content().is_empty() && registry.seen().is_empty());
    push(&node, &registry.named(&format!("demo@{}", artifact().digest()))).await.unwrap();
}

#[tokio::test]
async fn a_forbidden_push_suggests_to_log_in() {
    let registry = Registry::start().await;
    let mut node = Node::beside(&[&registry]);
    let reference = registry.named("demo:1");
    let check = |error: RegistryError, wanted: u16| {
        assert!(matches!(error, RegistryError::Forbidden { status, .. } if status == wanted), "{error:?}");
        assert!(message(&error).contains(&reference) && message(&error).contains("that may push to it"), "{error}");
        assert!(registry.content().is_empty());
    };
    for status in [401, 403] {
        for (method, part) in [(Method::HEAD, "blobs/"), (Method::POST, "uploads"), (Method::PUT, "uploads")] {
            registry.mend();
            registry.wrong_to(method, part, usize::MAX, Fault::status(status));
            check(push(&node, &reference).await.unwrap_err(), status);
        }
    }
    registry.mend();
    for login in [
        Login::Basic("joe", "secret"),
        Login::Token { realm: "http://HOST/token".to_owned(), account: Some(("joe", "secret")) },
    ] {
        registry.admit(login);
        check(push(&node, &reference).await.unwrap_err(), 401);
    }
    let config = node.folder().join("config.json");
    let auth = STANDARD.encode("joe:secret");
    fs::write(&config, format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.host())).unwrap();
    node.settings.credentials = vec![config];
    push(&node, &reference).await.unwrap();
    let token = Some("Bearer repository:demo:pull,push".to_owned());
    let uploads: Vec<_> = registry.seen().into_iter().rev().take_while(|seen| seen.path != "/v2/").collect();
    // Two blobs, the manifest under its digest, and last under its tag.
    assert!(uploads.iter().filter(|seen| seen.method == "PUT").count() == 4, "{uploads:?}");
    assert!(uploads.iter().all(|seen| seen.authorization == token || seen.path.starts_with("/token")), "{uploads:?}");
}

#[tokio::test]
async fn an_upload_that_fails_for_now_is_tried_again() {
    let registry = Registry::start().await;
    let node = Node::beside(&[&registry]);
    for (method, part) in
        [(Method::HEAD, "blobs/"), (Method::POST, "uploads"), (Method::PUT, "uploads"), (Method::PUT, "manifests/")]
    {
        registry.wrong_to(method, part, 1, Fault::status(503));
    }
    assert_eq!(push(&node, &registry.named("demo:1")).await.unwrap().digest, artifact().digest());
    let kinds = registry.seen().into_iter().fold(BTreeMap::new(), |mut kinds, seen| {
        *kinds.entry(seen.method).or_insert(0) += 1;
        kinds
    });
    assert!(kinds["POST"] > 2, "{kinds:?}");
}

#[tokio::test]
async fn a_registry_that_does_not_say_where_things_went_is_pushed_to_all_the_same() {
    let (origin, target) = (signed().await, Registry::start().await);
    target.hide_locations();
    let node = Node::beside(&[&origin, &target]);
    node.copy(&origin.named("demo:1"), &target.named("demo:1")).await.unwrap();
    assert_eq!(target.content(), copied(&origin).await);
}

#[tokio::test]
async fn an_upload_that_goes_elsewhere_does_not_take_the_password_along() {
    let (registry, shop) = (Registry::start().await, Registry::start().await);
    registry.admit(Login::Basic("joe", "secret"));
    let mut node = Node::beside(&[&registry]);
    let config = node.folder().join("config.json");
    let auth = STANDARD.encode("joe:secret");
    fs::write(&config, format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.host())).unwrap();
    node.settings.credentials = vec![config];
    let place = vec![("location", format!("http://{}/v2/demo/blobs/uploads/0", shop.host()))];
    let elsewhere = Fault::Answer { status: 202, headers: place, body: String::new() };
    registry.wrong_to(Method::POST, "uploads", usize::MAX, elsewhere);
    push(&node, &registry.named("demo:1")).await.unwrap_err();
    let there = shop.seen();
    assert!(!there.is_empty() && there.iter().all(|seen| seen.authorization.is_none()), "{there:?}");
}
