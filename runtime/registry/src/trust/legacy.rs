//! Signatures of cosign's first format: a "simple signing" payload, with the signature in an annotation of its layer.
//!
//! github.com/sigstore/cosign, specs/SIGNATURE_SPEC.md.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::signature::{Candidate, Claim, Doubt, Question, Shown, annotations, base64, docker_reference, json};

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

/// What a payload says, if one of the rule's keys signed it and it is about the artefact in question. Nothing in it is looked at
/// before it is known who signed it.
pub(super) fn claim<'a>(question: &Question<'a>, candidate: &Candidate) -> Result<Claim<'a>, Doubt> {
    let signature = candidate.annotations.get(SIGNATURE).ok_or(Doubt::Missing("annotation with a signature"))?;
    let signature = base64("signature", signature)?;
    let key = question
        .signer(None, |named| named.key.verify(&candidate.blob, &signature))
        .ok_or_else(|| question.foreign(candidate.annotations.contains_key(CERTIFICATE)))?;
    let Payload { critical, optional } = json("payload", &candidate.blob)?;
    if critical.r#type != KIND {
        return Err(Doubt::Kind { what: "type", found: Shown::new(&critical.r#type), wanted: KIND });
    }
    if critical.image.digest != question.subject.to_string() {
        return Err(Doubt::OtherArtefact(Shown::new(&critical.image.digest)));
    }
    if question.rule.docker_reference {
        let named = critical.identity.and_then(|identity| identity.docker_reference).unwrap_or_default();
        if docker_reference(&named) != docker_reference(question.repository) {
            return Err(Doubt::OtherRepository(Shown::new(&named)));
        }
    }
    Ok(Claim { key, annotations: annotations(optional) })
}
