//! Signatures of cosign's first format: a "simple signing" payload, with the signature in an annotation of its layer.
//!
//! github.com/sigstore/cosign, specs/SIGNATURE_SPEC.md.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::signature::{
    Candidate, Claim, Evaluation, RejectReason, Shown, annotations, base64, docker_reference, json,
};

pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const KIND: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
    #[serde(default)]
    optional: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(default)]
    identity: Option<Identity>,
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(default, rename = "docker-reference")]
    docker_reference: Option<String>,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The content of a payload that one of the rule's keys signed for this artefact. It is parsed only after its signature
/// was verified.
pub(super) fn claim<'a>(evaluation: &Evaluation<'a>, candidate: &Candidate) -> Result<Claim<'a>, RejectReason> {
    let signature = candidate.annotations.get(SIGNATURE).ok_or(RejectReason::Missing("annotation with a signature"))?;
    let signature = base64("signature", signature)?;
    let key = evaluation
        .signer(None, |named| named.key.verify(&candidate.blob, &signature))
        .ok_or_else(|| evaluation.foreign(candidate.annotations.contains_key(CERTIFICATE)))?;
    let Payload { critical, optional } = json("payload", &candidate.blob)?;
    if critical.r#type != KIND {
        return Err(RejectReason::Kind { what: "type", found: Shown::new(&critical.r#type), wanted: KIND });
    }
    if critical.image.digest != evaluation.subject.to_string() {
        return Err(RejectReason::OtherArtefact(Shown::new(&critical.image.digest)));
    }
    if evaluation.rule.docker_reference {
        let named = critical.identity.and_then(|identity| identity.docker_reference).unwrap_or_default();
        if docker_reference(&named) != docker_reference(evaluation.repository) {
            return Err(RejectReason::OtherRepository(Shown::new(&named)));
        }
    }
    Ok(Claim { key, annotations: annotations(optional) })
}
