//! The content of registries: policies, other artefacts, and signatures as cosign makes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use qosm_model::digest::Digest;
use qosm_registry::trust::TrustRule;
use serde_json::{Value, json};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const TAR: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A manifest and the blobs that it names.
#[derive(Clone)]
pub(crate) struct Artefact {
    pub(crate) media_type: String,
    pub(crate) manifest: Vec<u8>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

impl Artefact {
    /// A manifest with one layer for each blob, and the fields of `more`.
    pub(crate) fn of(config: (&str, &[u8]), layers: &[(&str, &[u8], Value)], more: &Value) -> Self {
        let blob = |(media_type, bytes): (&str, &[u8])| json!({"mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len()});
        let described = |(media_type, bytes, annotations): &(&str, &[u8], Value)| {
            let mut descriptor = blob((media_type, bytes));
            if annotations.is_object() {
                descriptor["annotations"] = annotations.clone();
            }
            descriptor
        };
        let layers_described: Vec<_> = layers.iter().map(described).collect();
        let mut manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": blob(config), "layers": layers_described});
        for (name, value) in more.as_object().into_iter().flatten() {
            manifest[name] = value.clone();
        }
        let blobs = layers.iter().map(|(_, bytes, _)| *bytes).chain([config.1]).map(<[u8]>::to_vec).collect();
        Self { media_type: MANIFEST.to_owned(), manifest: manifest.to_string().into_bytes(), blobs }
    }

    /// A policy in CNCF's layout.
    pub(crate) fn policy(module: &[u8]) -> Self {
        let config = json!({
            "created": "1970-01-01T00:00:00Z", "architecture": "wasm", "os": "wasip1",
            "layerDigests": [Digest::of(module).to_string()],
        });
        let config = config.to_string();
        let config = ("application/vnd.wasm.config.v0+json", config.as_bytes());
        Self::of(config, &[("application/wasm", module, Value::Null)], &Value::Null)
    }

    /// An image whose one layer is an archive with these files.
    pub(crate) fn image(files: &[(&str, &[u8])]) -> Self {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len().try_into().unwrap());
            header.set_mode(0o644);
            archive.append_data(&mut header, name, *bytes).unwrap();
        }
        let layer = archive.into_inner().unwrap().finish().unwrap();
        Self::of((IMAGE_CONFIG, b"{}"), &[(TAR, &layer, Value::Null)], &Value::Null)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// The module: the first layer.
    pub(crate) fn module(&self) -> &[u8] {
        &self.blobs[0]
    }

    /// Path of the module in the registry's API.
    pub(crate) fn module_path(&self) -> String {
        format!("blobs/{}", Digest::of(self.module()))
    }
}

/// Pseudo-random bytes of this length.
pub(crate) fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(length).collect()
}

/// A key that signs.
pub(crate) struct Key {
    name: &'static str,
    key: SigningKey,
}

impl Key {
    /// The same number gives the same key.
    pub(crate) fn new(name: &'static str, number: u8) -> Self {
        Self { name, key: SigningKey::from_slice(&[number; 32]).unwrap() }
    }

    /// A rule that requires this key's signature.
    pub(crate) fn rule(&self, pattern: &str) -> TrustRule {
        let pem = self.key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
        serde_json::from_value(json!({"pattern": pattern, "keys": [{"name": self.name, "pem": pem}]})).unwrap()
    }

    fn sign(&self, message: &[u8]) -> String {
        let signature: Signature = self.key.sign(message);
        STANDARD.encode(signature.to_der().as_bytes())
    }

    /// The artefact that `cosign sign --new-bundle-format=false` pushes to the tag `sha256-….sig`.
    pub(crate) fn legacy(&self, of: Digest) -> Artefact {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": "registry.example.com/policies/demo"},
                "image": {"docker-manifest-digest": of.to_string()},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let annotations = json!({"dev.cosignproject.cosign/signature": self.sign(payload.as_bytes())});
        let layer = ("application/vnd.dev.cosign.simplesigning.v1+json", payload.as_bytes(), annotations);
        Artefact::of((IMAGE_CONFIG, b"{\"of\":\"a signature\"}"), &[layer], &Value::Null)
    }

    /// The artefact that `cosign sign` makes: a manifest that refers to `of`.
    pub(crate) fn bundle(&self, of: &Artefact) -> Artefact {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": of.digest().hex()}}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {},
        });
        let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
        let signed = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let bundle = json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "whichever"}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(&payload), "payloadType": kind,
                "signatures": [{"sig": self.sign(signed.as_bytes())}],
            },
        });
        let bundle = bundle.to_string();
        let subject = json!({"mediaType": of.media_type, "digest": of.digest().to_string(), "size": of.manifest.len()});
        let layers = [(BUNDLE, bundle.as_bytes(), Value::Null)];
        let more = json!({"subject": subject, "artifactType": BUNDLE});
        Artefact::of(("application/vnd.oci.empty.v1+json", b"{}"), &layers, &more)
    }
}
