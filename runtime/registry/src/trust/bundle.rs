//! Signatures in Sigstore bundles, as cosign 3 writes them: an in-toto statement in a DSSE envelope, or a bare signature of the
//! manifest.
//!
//! github.com/sigstore/protobuf-specs, sigstore_bundle.proto; github.com/secure-systems-lab/dsse, protocol.md;
//! github.com/in-toto/attestation, spec/v1/statement.md.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::signature::{Candidate, Claim, Evaluation, RejectReason, Shown, annotations, base64, json};

const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3";
/// An older spelling of the same media type and version.
const MEDIA_TYPE_WITH_VERSION: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";
const SHA256: &str = "SHA2_256";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    #[serde(default)]
    verification_material: Option<Material>,
    #[serde(default)]
    dsse_envelope: Option<Envelope>,
    #[serde(default)]
    message_signature: Option<MessageSignature>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(default)]
    public_key: Option<KeyHint>,
    #[serde(default)]
    certificate: Option<IgnoredAny>,
    #[serde(default)]
    x509_certificate_chain: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct KeyHint {
    #[serde(default)]
    hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageSignature {
    #[serde(default)]
    message_digest: MessageDigest,
    signature: String,
}

/// Empty if cosign signed with Ed25519.
#[derive(Default, Deserialize)]
struct MessageDigest {
    #[serde(default)]
    algorithm: Option<String>,
    #[serde(default)]
    digest: String,
}

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    digest: BTreeMap<String, String>,
    #[serde(default)]
    annotations: Option<Map<String, Value>>,
}

/// The part of a statement that shows whether it is a signature at all.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    predicate_type: String,
}

/// Whether a media type is that of a bundle of version 0.3.
pub(super) fn is_media_type(text: &str) -> bool {
    let after = text.strip_prefix(MEDIA_TYPE).map(str::as_bytes);
    after.is_some_and(|rest| matches!(rest, [] | [b'+' | b'.' | b';', ..]))
        || text.split_whitespace().collect::<String>() == MEDIA_TYPE_WITH_VERSION
}

/// The content of a bundle that one of the rule's keys signed for this artefact.
pub(super) fn claim<'a>(evaluation: &Evaluation<'a>, candidate: &Candidate) -> Result<Claim<'a>, RejectReason> {
    let bundle: Bundle = json("bundle", &candidate.blob)?;
    if !is_media_type(&bundle.media_type) {
        return Err(RejectReason::MediaType(Shown::new(&bundle.media_type)));
    }
    let material = bundle.verification_material;
    let has_certificate = material
        .as_ref()
        .is_some_and(|material| material.certificate.is_some() || material.x509_certificate_chain.is_some());
    let hint = material.and_then(|material| material.public_key).and_then(|key| key.hint);
    match (bundle.dsse_envelope, bundle.message_signature) {
        (Some(envelope), None) => envelope.claim(evaluation, hint.as_deref(), has_certificate),
        (None, Some(signature)) => signature.claim(evaluation, hint.as_deref(), has_certificate),
        (None, None) => Err(RejectReason::Missing("`dsseEnvelope` or `messageSignature` in the bundle")),
        // With two contents, the reader would choose which one was signed.
        (Some(_), Some(_)) => Err(RejectReason::Signatures(2)),
    }
}

impl Envelope {
    fn claim<'a>(
        &self,
        evaluation: &Evaluation<'a>,
        hint: Option<&str>,
        has_certificate: bool,
    ) -> Result<Claim<'a>, RejectReason> {
        let [EnvelopeSignature { sig }] = self.signatures.as_slice() else {
            return Err(RejectReason::Signatures(self.signatures.len()));
        };
        let (signature, payload) = (base64("signature", sig)?, base64("payload", &self.payload)?);
        if self.payload_type != PAYLOAD_TYPE {
            let found = Shown::new(&self.payload_type);
            return Err(RejectReason::Kind { what: "payloadType", found, wanted: PAYLOAD_TYPE });
        }
        let signed = pre_authentication_encoding(&self.payload_type, &payload);
        let Some(key) = evaluation.signer(hint, |named| named.key.verify(&signed, &signature)) else {
            // Attestations often come from other signers, such as a build service, and are not suspicious.
            return Err(match json::<Predicate>("payload", &payload) {
                Ok(Predicate { predicate_type }) if predicate_type != SIGNATURE => attestation(&predicate_type),
                _ => evaluation.foreign(has_certificate),
            });
        };
        // First, because a statement of another type may have another form.
        let Predicate { predicate_type } = json("statement", &payload)?;
        if predicate_type != SIGNATURE {
            return Err(attestation(&predicate_type));
        }
        let statement: Statement = json("statement", &payload)?;
        if statement.kind != STATEMENT {
            return Err(RejectReason::Kind { what: "_type", found: Shown::new(&statement.kind), wanted: STATEMENT });
        }
        let count = statement.subject.len();
        let Ok([subject]) = <[Subject; 1]>::try_from(statement.subject) else {
            return Err(RejectReason::Subjects(count));
        };
        match subject.digest.get("sha256") {
            Some(digest) if *digest == evaluation.subject.hex() => {}
            Some(digest) => return Err(RejectReason::OtherArtefact(Shown::new(digest))),
            None => return Err(RejectReason::Missing("`sha256` in the subject's digest")),
        }
        Ok(Claim { key, annotations: annotations(subject.annotations) })
    }
}

impl MessageSignature {
    /// The claim of a signature over the manifest itself, which has no place for signed annotations.
    fn claim<'a>(
        &self,
        evaluation: &Evaluation<'a>,
        hint: Option<&str>,
        has_certificate: bool,
    ) -> Result<Claim<'a>, RejectReason> {
        let MessageDigest { algorithm, digest } = &self.message_digest;
        if algorithm.as_deref() != Some(SHA256) {
            return Err(RejectReason::Hash(algorithm.as_deref().map(Shown::new)));
        }
        let digest = base64("messageDigest", digest)?;
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if hex != evaluation.subject.hex() {
            return Err(RejectReason::OtherArtefact(Shown::new(&hex)));
        }
        let signature = base64("signature", &self.signature)?;
        let key = evaluation
            .signer(hint, |named| named.key.verify_sha256(&digest, &signature))
            .ok_or_else(|| evaluation.foreign(has_certificate))?;
        Ok(Claim { key, annotations: BTreeMap::new() })
    }
}

fn attestation(predicate_type: &str) -> RejectReason {
    RejectReason::Attestation(Shown::new(predicate_type))
}

/// The bytes that DSSE signs: type and payload, with their lengths, so that no byte can move from one to the other.
pub(super) fn pre_authentication_encoding(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}
