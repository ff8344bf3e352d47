//! Keys for tests, and signatures as cosign makes them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Digest as _, Sha512, Signer as _};
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use qosm_model::digest::Digest;
use serde_json::{Value, json};

use super::bundle::pre_authentication_encoding;
use super::{Candidate, Format};

pub(super) const REPOSITORY: &str = "registry.example.com/policies/demo";

pub(super) enum Signer {
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
    Ed25519ph(ed25519_dalek::SigningKey),
    Ed25519(ed25519_dalek::SigningKey),
}

impl Signer {
    /// The same number gives the same key.
    pub(super) fn p256(number: u8) -> Self {
        Self::P256(p256::ecdsa::SigningKey::from_slice(&[number; 32]).unwrap())
    }

    pub(super) fn p384(number: u8) -> Self {
        Self::P384(p384::ecdsa::SigningKey::from_slice(&[number; 48]).unwrap())
    }

    pub(super) fn ed25519ph(number: u8) -> Self {
        Self::Ed25519ph(ed25519_dalek::SigningKey::from_bytes(&[number; 32]))
    }

    pub(super) fn ed25519(number: u8) -> Self {
        Self::Ed25519(ed25519_dalek::SigningKey::from_bytes(&[number; 32]))
    }

    pub(super) fn pem(&self) -> String {
        match self {
            Self::P256(key) => key.verifying_key().to_public_key_pem(LineEnding::LF),
            Self::P384(key) => key.verifying_key().to_public_key_pem(LineEnding::LF),
            Self::Ed25519ph(key) | Self::Ed25519(key) => {
                let der = key.verifying_key().to_public_key_der().unwrap();
                return der.to_pem("PUBLIC KEY", LineEnding::LF).unwrap();
            }
        }
        .unwrap()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.to_der().as_bytes().to_vec()
            }
            Self::P384(key) => {
                let signature: p384::ecdsa::Signature = key.sign(message);
                signature.to_der().as_bytes().to_vec()
            }
            Self::Ed25519ph(key) => {
                key.sign_prehashed(Sha512::new_with_prefix(message), None).unwrap().to_bytes().to_vec()
            }
            Self::Ed25519(key) => key.sign(message).to_bytes().to_vec(),
        }
    }

    /// `cosign sign --new-bundle-format=false`.
    pub(super) fn legacy(&self, subject: &Digest, annotations: &[(&str, &str)]) -> Candidate {
        self.legacy_of(&payload(subject, annotations))
    }

    pub(super) fn legacy_of(&self, payload: &Value) -> Candidate {
        let blob = payload.to_string().into_bytes();
        let signature = STANDARD.encode(self.sign(&blob));
        Candidate {
            origin: "sha256-12.sig".to_owned(),
            format: Format::Legacy,
            annotations: BTreeMap::from([("dev.cosignproject.cosign/signature".to_owned(), signature)]),
            media_type: "application/vnd.dev.cosign.simplesigning.v1+json".to_owned(),
            blob,
        }
    }

    /// `cosign sign`.
    pub(super) fn bundle(&self, subject: &Digest, annotations: &[(&str, &str)]) -> Candidate {
        self.bundle_of(&statement(subject, annotations))
    }

    pub(super) fn bundle_of(&self, statement: &Value) -> Candidate {
        bundle(&self.envelope(statement.to_string().as_bytes()))
    }

    pub(super) fn envelope(&self, payload: &[u8]) -> Value {
        let kind = "application/vnd.in-toto+json";
        let signature = STANDARD.encode(self.sign(&pre_authentication_encoding(kind, payload)));
        json!({ "dsseEnvelope": {
            "payload": STANDARD.encode(payload), "payloadType": kind, "signatures": [{ "sig": signature }],
        } })
    }

    /// `cosign sign-blob --bundle` of the manifest.
    pub(super) fn message(&self, manifest: &[u8]) -> Candidate {
        bundle(&json!({ "messageSignature": {
            "messageDigest": { "algorithm": "SHA2_256", "digest": STANDARD.encode(sha256(manifest)) },
            "signature": STANDARD.encode(self.sign(manifest)),
        } }))
    }
}

pub(super) fn payload(subject: &Digest, annotations: &[(&str, &str)]) -> Value {
    json!({
        "critical": {
            "identity": { "docker-reference": REPOSITORY },
            "image": { "docker-manifest-digest": subject.to_string() },
            "type": "cosign container image signature",
        },
        "optional": object(annotations),
    })
}

pub(super) fn statement(subject: &Digest, annotations: &[(&str, &str)]) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "digest": { "sha256": subject.hex() }, "annotations": object(annotations) }],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
}

/// A candidate with a bundle of this content.
pub(super) fn bundle(content: &Value) -> Candidate {
    let mut bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": { "publicKey": { "hint": "of another key" } },
    });
    for (name, value) in content.as_object().unwrap() {
        bundle[name] = value.clone();
    }
    Candidate {
        origin: "sha256:12".to_owned(),
        format: Format::Bundle,
        annotations: BTreeMap::new(),
        media_type: "application/vnd.dev.sigstore.bundle.v0.3+json".to_owned(),
        blob: bundle.to_string().into_bytes(),
    }
}

/// cosign writes `null` if there are none.
fn object(annotations: &[(&str, &str)]) -> Value {
    if annotations.is_empty() {
        Value::Null
    } else {
        annotations.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect()
    }
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digits = Digest::of(bytes).hex();
    std::array::from_fn(|index| u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap())
}
