//! Which signatures count, unreachable signatures, and artefacts that were pulled before the rules changed.

use qosm_model::digest::Digest;
use qosm_registry::trust::{TrustPolicy, TrustRule};
use qosm_registry::{RegistryError, Trusted, trust_of};
use serde_json::{Value, json};

use crate::artefact::{Artefact, IMAGE_CONFIG, Key, noise};
use crate::fault::Fault;
use crate::node::{Node, location, message};
use crate::registry::Registry;

fn policy() -> Artefact {
    Artefact::policy(&noise(11, 1000))
}

fn release() -> Key {
    Key::new("release", 1)
}

fn signature_tag(of: Digest) -> String {
    format!("sha256-{}.sig", of.hex())
}

async fn beside() -> (Registry, Node, String) {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    (registry, node, reference)
}

fn sign(registry: &Registry, key: &Key) {
    registry.put("demo", &signature_tag(policy().digest()), &key.legacy(policy().digest()));
}

fn unsigned(pattern: &str) -> TrustRule {
    serde_json::from_value(json!({"pattern": pattern, "unsigned": true})).unwrap()
}

async fn keys(node: &Node, reference: &str) -> Vec<String> {
    match node.pull(reference).await.unwrap().trusted {
        Trusted::Signed(good) => good.into_iter().map(|good| format!("{} {:?}", good.key, good.format)).collect(),
        other => vec![other.to_string()],
    }
}

#[tokio::test]
async fn with_a_rule_for_others_it_is_denied_before_anything_is_fetched() {
    let (registry, mut node, reference) = beside().await;
    sign(&registry, &release());
    node.trust(vec![release().rule("registry.example.com/*")]);
    let error = node.refusal(&registry.named("demo:1")).await;
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
    let name = registry.named("demo");
    assert!(
        message(&error).contains(&format!("no rule of `registries.verification` matches `{name}`; add one")),
        "{error}"
    );
    assert!(registry.gets("blobs/").is_empty());
    node.trust(vec![release().rule("registry.example.com/*"), unsigned(&name)]);
    assert_eq!(keys(&node, &reference).await, ["unsigned, as a rule allows"]);
}

#[tokio::test]
async fn an_unsigned_artefact_is_refused_until_it_is_signed_in_either_format() {
    let is_old = [true, false];
    for (is_old, has_api) in is_old.map(|is_old| [(is_old, false), (is_old, true)]).concat() {
        let registry = if has_api { Registry::with_referrers().await } else { Registry::start().await };
        registry.put("demo", "1", &policy());
        let (mut node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
        node.trust(vec![release().rule(&registry.named("demo"))]);
        let pinned = registry.named(&format!("demo@{}", policy().digest()));
        let error = node.pull(&reference).await.unwrap_err();
        assert!(matches!(&error, RegistryError::Untrusted { what, .. } if *what == pinned), "{error:?}");
        assert!(registry.gets("blobs/").is_empty());
        if is_old {
            sign(&registry, &release());
        } else {
            registry.refer("demo", policy().digest(), &release().bundle(&policy()));
        }
        let format = if is_old { "release Legacy" } else { "release Bundle" };
        assert_eq!(keys(&node, &reference).await, [format]);
        // From the store, without the registry.
        registry.wrong("", usize::MAX, Fault::status(500));
        assert_eq!(keys(&node, &reference).await, [format]);
    }
}

#[tokio::test]
async fn a_signature_on_a_later_page_of_the_referrers_counts() {
    let registry = Registry::with_referrers().await;
    registry.page_by(1);
    registry.put("demo", "1", &policy());
    let (mut node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    node.trust(vec![release().rule(&registry.named("demo"))]);
    let others = [2, 3, 4].map(|seed| Key::new("other", seed).bundle(&policy()));
    for signature in others.iter().chain([&release().bundle(&policy())]) {
        registry.refer("demo", policy().digest(), signature);
    }
    assert_eq!(keys(&node, &reference).await, ["release Bundle"]);
    assert_eq!(registry.gets("referrers/").len(), 4, "no page twice");
}

#[tokio::test]
async fn signatures_of_others_or_of_something_else_do_not_count() {
    let (registry, mut node, reference) = beside().await;
    node.trust(vec![release().rule(&registry.named("demo"))]);
    let other = Artefact::policy(&noise(12, 10));
    for signature in [Key::new("other", 2).legacy(policy().digest()), release().legacy(other.digest())] {
        registry.put("demo", &signature_tag(policy().digest()), &signature);
        let error = node.pull_anew(&reference).await.unwrap_err();
        assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
        assert!(!matches!(node.stored(&reference), Ok(Some(_))));
    }
    assert!(registry.gets(&policy().module_path()).is_empty());
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_not_one_without_signatures() {
    let signature = release().legacy(policy().digest());
    let blob = format!("blobs/{}", Digest::of(signature.module()));
    let hex = policy().digest().hex();
    let is_answer = |error: &_| matches!(error, RegistryError::Answer { status: 429 | 500, .. });
    let is_forbidden = |error: &_| matches!(error, RegistryError::Forbidden { .. });
    let parts = ["referrers/".to_owned(), format!("manifests/sha256-{hex}"), ".sig".to_owned(), blob];
    let cases = parts.iter().flat_map(|part| [500, 403, 429].map(|status| (part, status)));
    futures::future::join_all(cases.map(async |(part, status)| {
        let (registry, mut node, reference) = beside().await;
        sign(&registry, &release());
        node.trust(vec![release().rule(&registry.named("demo"))]);
        registry.wrong(part, usize::MAX, if status == 429 { Fault::later(3600) } else { Fault::status(status) });
        let error = node.pull(&reference).await.unwrap_err();
        assert!(if status == 403 { is_forbidden(&error) } else { is_answer(&error) }, "{part}: {error:?}");
        assert!(node.stored(&reference).unwrap().is_none(), "{part}");
        registry.mend();
        assert_eq!(keys(&node, &reference).await, ["release Legacy"], "{part}");
    }))
    .await;
}

#[tokio::test]
async fn what_lies_broken_beside_a_good_signature_does_no_harm() {
    let bundle = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let subject = json!({"subject": {"mediaType": "x/y", "digest": policy().digest().to_string(), "size": 1}});
    let beside_it = |bytes: &[u8]| Artefact::of((IMAGE_CONFIG, b"{}"), &[(bundle, bytes, Value::Null)], &subject);
    let large = beside_it(&vec![b' '; 5 << 20]);
    let missing = Artefact { blobs: vec![b"{}".to_vec()], ..beside_it(b"missing") };
    let nonsense = beside_it(b"nonsense");
    let mut unnamed = beside_it(b"unnamed");
    let text = String::from_utf8(unnamed.manifest).unwrap();
    unnamed.manifest = text.replace(&Digest::of(b"unnamed").to_string(), "sha256:12").into_bytes();
    for (name, broken) in [("large", large), ("missing", missing), ("nonsense", nonsense), ("unnamed", unnamed)] {
        let (registry, mut node, reference) = beside().await;
        node.trust(vec![release().rule(&registry.named("demo"))]);
        registry.refer("demo", policy().digest(), &broken);
        let error = node.pull(&reference).await.unwrap_err();
        assert!(matches!(error, RegistryError::Untrusted { .. }), "{name}: {error:?}");
        sign(&registry, &release());
        match node.pull_anew(&reference).await {
            Ok(pulled) => assert!(matches!(pulled.trusted, Trusted::Signed(_)), "{name}"),
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_tag_that_moved_is_followed_only_when_asked_to() {
    let (registry, node, reference) = beside().await;
    node.check_pull(&reference, &policy()).await;
    let newer = Artefact::policy(&noise(13, 500));
    registry.put("demo", "1", &newer);
    node.check_pull(&reference, &policy()).await;
    let pinned = format!("{reference}@{}", policy().digest());
    let info = node.store().inspect(&location(&pinned)).await.unwrap();
    assert_eq!((info.digest, info.moved), (policy().digest(), Some(newer.digest())));
    // The newer version cannot be fetched: the older one stays.
    registry.wrong(&newer.module_path(), usize::MAX, Fault::status(403));
    node.pull_anew(&reference).await.unwrap_err();
    assert_eq!(node.stored(&reference).unwrap().unwrap().digest, policy().digest());
    registry.mend();
    assert_eq!(node.pull_anew(&reference).await.unwrap().digest, newer.digest());
    node.check_pull(&reference, &newer).await;
    node.check_pull(&pinned, &policy()).await;
}

#[tokio::test]
async fn a_key_that_is_withdrawn_counts_no_more_for_what_was_pulled_before() {
    let (registry, mut node, reference) = beside().await;
    let next = Key::new("next", 2);
    sign(&registry, &release());
    node.trust(vec![release().rule(&registry.named("demo"))]);
    assert_eq!(keys(&node, &reference).await, ["release Legacy"]);
    node.trust(vec![next.rule(&registry.named("demo"))]);
    for error in [node.stored(&reference).unwrap_err(), node.pull(&reference).await.unwrap_err()] {
        assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
        assert!(message(&error).contains("next"), "{error}");
    }
    // Signed again, by the key that counts now: only the new signature is fetched, not the module.
    sign(&registry, &next);
    registry.forget();
    assert_eq!(keys(&node, &reference).await, ["next Legacy"]);
    assert!(registry.gets(&policy().module_path()).is_empty());
    node.trust(vec![release().rule(&registry.named("demo"))]);
    assert!(node.stored(&reference).is_err());
}

#[tokio::test]
async fn what_was_pulled_unchecked_is_checked_once_there_is_a_rule() {
    let (registry, mut node, reference) = beside().await;
    node.check_pull(&reference, &policy()).await;
    sign(&registry, &release());
    registry.forget();
    node.trust(vec![release().rule(&registry.named("demo"))]);
    assert!(node.stored(&reference).unwrap().is_none(), "what vouches for it is not here");
    assert_eq!(keys(&node, &reference).await, ["release Legacy"]);
    assert!(registry.gets(&policy().module_path()).is_empty(), "the module is here");
    assert!(node.stored(&reference).unwrap().is_some());
}

#[tokio::test]
async fn rules_beside_the_librarys_own_must_be_content_as_well() {
    let (registry, mut node, reference) = beside().await;
    let (name, owner) = (registry.named("demo"), Key::new("owner", 2));
    sign(&registry, &release());
    node.trust(vec![release().rule(&name)]);
    let also = trust_of(&TrustPolicy { rules: vec![owner.rule(&name)] }).unwrap();
    let (store, place) = (node.store(), location(&reference));
    let error = store.pull(&place, Some(&also), false, &mut ()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
    registry.refer("demo", policy().digest(), &owner.bundle(&policy()));
    let pulled = store.pull(&place, Some(&also), false, &mut ()).await.unwrap();
    let Trusted::Signed(good) = pulled.trusted else { panic!() };
    let mut keys: Vec<_> = good.into_iter().map(|good| good.key).collect();
    keys.sort();
    assert_eq!(keys, ["owner", "release"]);
}
