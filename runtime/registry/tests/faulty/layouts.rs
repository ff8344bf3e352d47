//! Artefacts that are policies, and artefacts that are not.

use qosm_registry::RegistryError;
use serde_json::{Value, json};

use crate::artefact::{Artefact, IMAGE_CONFIG, INDEX, Key, MANIFEST, noise};
use crate::node::{Node, message};
use crate::registry::Registry;

#[tokio::test]
async fn an_artefact_that_is_no_policy_is_described() {
    let policy = Artefact::policy(&noise(9, 100));
    let entry = json!({"mediaType": MANIFEST, "digest": policy.digest().to_string(), "size": policy.manifest.len()});
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    let list = Artefact { media_type: INDEX.to_owned(), manifest: list.into_bytes(), blobs: Vec::new() };
    let chart = ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", b"chart".as_slice(), Value::Null);
    let chart = Artefact::of(("application/vnd.cncf.helm.config.v1+json", b"{}"), &[chart], &Value::Null);
    let key = Key::new("release", 1);
    for (name, artefact, said) in [
        ("list", list, format!("name one of them by its digest: {}", policy.digest())),
        ("old-signature", key.legacy(policy.digest()), "it is a signature, not a policy".to_owned()),
        ("signature", key.bundle(&policy), "it is a signature, not a policy".to_owned()),
        ("chart", chart, "helm.chart.content.v1.tar+gzip`; one of `application/wasm` is expected".to_owned()),
        ("nothing", Artefact::of((IMAGE_CONFIG, b"{}"), &[], &Value::Null), "its layers are none".to_owned()),
    ] {
        let registry = Registry::start().await;
        registry.put("demo", name, &artefact);
        let node = Node::beside(&[&registry]);
        let error = node.refusal(&registry.named(&format!("demo:{name}"))).await;
        assert!(matches!(error, RegistryError::InvalidArtifact { .. }), "{name}: {error:?}");
        assert!(message(&error).contains(&said), "{name}: {error}");
        assert!(registry.gets("blobs/").is_empty(), "{name}: nothing more is fetched");
    }
}

#[tokio::test]
async fn the_module_comes_out_of_what_other_tools_pack() {
    let module = noise(10, 5000);
    for (name, image) in [
        ("opa", Artefact::image(&[("data.json", b"{}"), ("policy.wasm", &module), ("policy.rego", b"package x")])),
        ("proxy", Artefact::image(&[("plugin.wasm", &module)])),
    ] {
        let registry = Registry::start().await;
        registry.put("demo", name, &image);
        let (node, reference) = (Node::beside(&[&registry]), registry.named(&format!("demo:{name}")));
        let pulled = node.pull(&reference).await.unwrap();
        assert!(pulled.module == module && pulled.digest == image.digest(), "{name}");
        assert!(node.stored(&reference).unwrap().unwrap().module == module, "{name}");
    }
}

#[tokio::test]
async fn an_archive_that_unpacks_to_too_much_is_refused_each_time() {
    let registry = Registry::start().await;
    let bomb = Artefact::image(&[("policy.wasm", &vec![0; 8 << 20])]);
    assert!(bomb.module().len() < 100_000);
    registry.put("demo", "bomb", &bomb);
    let mut node = Node::beside(&[&registry]);
    node.settings.limits.module_mib = 1;
    let reference = registry.named("demo:bomb");
    for _ in 0..2 {
        let error = node.refusal(&reference).await;
        assert!(matches!(error, RegistryError::TooLarge { .. }), "{error:?}");
    }
}
