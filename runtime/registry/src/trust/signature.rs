//! Checks an artefact's signatures against the rule that applies to it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use qosm_model::digest::Digest;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{NamedKey, Require, Rule, bundle, legacy};

/// Maximum number of candidates that are checked: anyone who may push to the repository could add any number.
pub const MAX_CANDIDATES: usize = 64;
/// Size above which a candidate is not read, in bytes.
pub const MAX_BLOB: usize = 256 << 10;
/// Maximum number of signatures checked in one manifest of the old format: its last ones, because cosign appends.
pub const MAX_SIGNATURES: usize = 8;

/// A candidate signature: one layer of a manifest that was found beside the artefact. Its bytes were compared with the digest in
/// that manifest when they were fetched.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Tag or digest of the manifest that has this layer.
    pub origin: String,
    /// The format of the layer.
    pub format: Format,
    /// The layer's bytes.
    pub blob: Vec<u8>,
    /// The annotations of the layer's descriptor.
    pub annotations: BTreeMap<String, String>,
    /// The media type of the layer's descriptor.
    pub media_type: String,
}

/// The format of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// A "simple signing" payload, its signature in an annotation: cosign 1 and 2, or 3 with `--new-bundle-format=false`.
    Legacy,
    /// A Sigstore bundle of version 0.3: cosign 3.
    Bundle,
}

impl Format {
    /// The format of a layer with this media type; `None` for other types.
    pub fn of_layer(media_type: &str) -> Option<Self> {
        if media_type == legacy::MEDIA_TYPE {
            Some(Self::Legacy)
        } else {
            bundle::is_media_type(media_type).then_some(Self::Bundle)
        }
    }
}

/// A rule's decision about an artefact with these signatures.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleOutcome {
    /// Whether the artefact may be loaded.
    pub outcome: Outcome,
    /// The signatures that count, in the order of the candidates.
    pub signatures: Vec<Good>,
    /// The candidates that do not count, in their order.
    pub rejected: Vec<Rejected>,
}

/// Whether an artefact may be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The artefact may be loaded.
    Accepted,
    /// The artefact must not be loaded: why, and the remedy.
    Refused(String),
}

/// A signature that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Good {
    /// The name of the key in the rule.
    pub key: String,
    /// The key's fingerprint.
    pub fingerprint: String,
    /// The signature's format.
    pub format: Format,
    /// The signed annotations with string values.
    pub annotations: BTreeMap<String, String>,
    /// Tag or digest of the manifest that holds it.
    pub origin: String,
}

/// A candidate that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Tag or digest of the manifest that holds it.
    pub origin: String,
    /// Why, on one line.
    pub why: String,
}

/// Checks signatures against a rule: `repository` is `REGISTRY/REPOSITORY` as the reference names it, `subject` the digest of the
/// manifest that is to be loaded. The artefact is accepted if as many different keys as the rule requires have signed this
/// digest, each with the required annotations; other signatures do not matter.
pub fn judge(rule: &Rule, repository: &str, subject: &Digest, candidates: &[Candidate]) -> RuleOutcome {
    let evaluation = Evaluation { rule, repository, subject };
    let mut signatures = Vec::new();
    let mut rejected = Vec::new();
    let mut reasons = Vec::new();
    let mut checked = 0;
    let mut legacy = LegacyCounts::count(candidates);
    for candidate in candidates {
        let reason = if checked == MAX_CANDIDATES {
            RejectReason::TooManyCandidates
        } else if legacy.is_one_too_many(candidate) {
            RejectReason::TooManySignatures
        } else {
            checked += 1;
            match evaluation.claim(candidate) {
                Ok(claim) => {
                    signatures.push(claim.into_good(candidate));
                    continue;
                }
                Err(reason) => reason,
            }
        };
        let is_last = matches!(reason, RejectReason::TooManyCandidates);
        rejected.push(Rejected { origin: candidate.origin.clone(), why: reason.to_string() });
        reasons.push(reason);
        if is_last {
            break;
        }
    }
    let signers: BTreeSet<&str> = signatures.iter().map(|good: &Good| good.fingerprint.as_str()).collect();
    let outcome = if signers.len() >= rule.needed() {
        Outcome::Accepted
    } else {
        Outcome::Refused(evaluation.refusal(&signers, &reasons))
    };
    RuleOutcome { outcome, signatures, rejected }
}

/// What a signature is checked against.
#[derive(Clone, Copy)]
pub(super) struct Evaluation<'a> {
    pub(super) rule: &'a Rule,
    pub(super) repository: &'a str,
    pub(super) subject: &'a Digest,
}

/// A valid signature of the right digest by one of the rule's keys, and its signed annotations.
pub(super) struct Claim<'a> {
    pub(super) key: &'a NamedKey,
    pub(super) annotations: BTreeMap<String, String>,
}

impl<'a> Evaluation<'a> {
    fn claim(&self, candidate: &Candidate) -> Result<Claim<'a>, RejectReason> {
        if candidate.blob.len() > MAX_BLOB {
            return Err(RejectReason::TooLarge(candidate.blob.len()));
        }
        if Format::of_layer(&candidate.media_type) != Some(candidate.format) {
            return Err(RejectReason::MediaType(Shown::new(&candidate.media_type)));
        }
        let claim = match candidate.format {
            Format::Legacy => legacy::claim(self, candidate)?,
            Format::Bundle => bundle::claim(self, candidate)?,
        };
        for (name, wanted) in &self.rule.annotations {
            let found = claim.annotations.get(name);
            if found != Some(wanted) {
                let (name, wanted) = (name.clone(), wanted.clone());
                return Err(RejectReason::Annotation { name, wanted, found: found.map(|found| Shown::new(found)) });
            }
        }
        Ok(claim)
    }

    /// The first of the rule's keys that made this signature. The hint only decides which key is tried first.
    pub(super) fn signer(&self, hint: Option<&str>, is_signed: impl Fn(&NamedKey) -> bool) -> Option<&'a NamedKey> {
        let is_hinted = |named: &&NamedKey| hint == Some(named.key.hint());
        let (hinted, others): (Vec<_>, Vec<_>) = self.rule.keys.iter().partition(is_hinted);
        hinted.into_iter().chain(others).find(|named| is_signed(named))
    }

    /// The reason if no key of the rule made this signature.
    pub(super) fn foreign(&self, has_certificate: bool) -> RejectReason {
        RejectReason::Foreign { keys: Names(self.rule.keys.iter()).to_string(), has_certificate }
    }

    fn refusal(&self, signers: &BTreeSet<&str>, reasons: &[RejectReason]) -> String {
        let Self { rule, repository, subject } = self;
        let is_missing = |named: &&NamedKey| !signers.contains(named.key.fingerprint().as_str());
        let failed: Vec<_> = reasons.iter().filter(|reason| !reason.is_skip()).collect();
        let found = match (signers.len(), failed.as_slice()) {
            (0, []) if reasons.is_empty() => "it has no signature".to_owned(),
            (0, []) => "it has attestations and no signature".to_owned(),
            (0, [only]) => format!("its signature does not count ({only})"),
            (0, [first, ..]) => format!("none of its {} signatures counts (the first: {first})", failed.len()),
            _ => {
                format!("it is signed by {} alone", Names(rule.keys.iter().filter(|named| !is_missing(named))))
            }
        };
        let all = Names(rule.keys.iter());
        let wanted = match rule.require {
            _ if rule.keys.len() == 1 => format!("{all}"),
            Require::Any => format!("one of {all}"),
            Require::All => format!("each of {all}"),
            Require::AtLeast(number) => format!("{number} of {all}"),
        };
        let missing = Names(rule.keys.iter().filter(is_missing));
        let annotations: String = rule.annotations.iter().map(|(name, value)| format!("-a {name}={value} ")).collect();
        // cosign signs only in registries.
        let way_out = if repository.starts_with("oci-layout:") {
            "sign it in a registry, and copy it from there with `qosm policy copy`".to_owned()
        } else {
            format!("`cosign sign --key KEY {annotations}{repository}@{subject}`")
        };
        format!(
            "{found}, and rule `{}` wants it signed by {wanted}; have it signed by {missing}: {way_out}",
            rule.pattern,
        )
    }
}

impl Claim<'_> {
    fn into_good(self, candidate: &Candidate) -> Good {
        Good {
            key: self.key.name.clone(),
            fingerprint: self.key.key.fingerprint(),
            format: candidate.format,
            annotations: self.annotations,
            origin: candidate.origin.clone(),
        }
    }
}

/// Number of remaining signatures of the old format, by manifest; the ones before the last [`MAX_SIGNATURES`] are not checked.
struct LegacyCounts<'a>(BTreeMap<&'a str, usize>);

impl<'a> LegacyCounts<'a> {
    fn count(candidates: &'a [Candidate]) -> Self {
        let mut counts = BTreeMap::new();
        for candidate in candidates.iter().filter(|candidate| candidate.format == Format::Legacy) {
            *counts.entry(candidate.origin.as_str()).or_default() += 1;
        }
        Self(counts)
    }

    fn is_one_too_many(&mut self, candidate: &Candidate) -> bool {
        match self.0.get_mut(candidate.origin.as_str()) {
            Some(count) if candidate.format == Format::Legacy && *count > MAX_SIGNATURES => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

/// Why a candidate does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum RejectReason {
    #[error("this and all after it are not checked: {MAX_CANDIDATES} candidates are the limit")]
    TooManyCandidates,
    #[error("not checked: only the last {MAX_SIGNATURES} signatures of a manifest are")]
    TooManySignatures,
    #[error("it has {0} bytes, more than the {MAX_BLOB} that a signature may have")]
    TooLarge(usize),
    #[error("layers of the type {0} are no signatures that are read here")]
    MediaType(Shown),
    #[error("skipped: an attestation ({0}), not a signature")]
    Attestation(Shown),
    #[error("its {0} is not base64")]
    Base64(&'static str),
    #[error("its {what} is not the JSON that it should be: {error}")]
    Json { what: &'static str, error: Shown },
    #[error("there is no {0}")]
    Missing(&'static str),
    #[error("it has {0} signatures, where there must be one")]
    Signatures(usize),
    #[error("it has {0} subjects, where there must be one: the manifest")]
    Subjects(usize),
    #[error("no key of the rule ({keys}) made it{}", if *has_certificate {
        ": it came with a certificate (keyless), and only signatures by a key are read; sign with `cosign sign --key`"
    } else { "" })]
    Foreign { keys: String, has_certificate: bool },
    #[error("its {what} is {found}, where `{wanted}` is wanted")]
    Kind { what: &'static str, found: Shown, wanted: &'static str },
    #[error("it is a signature of another artefact, {0}")]
    OtherArtefact(Shown),
    #[error("it was made for the repository {0}, and the rule says `dockerReference: true`")]
    OtherRepository(Shown),
    #[error(
        "it is a signature of the manifest as a file, by {}, and only one by its SHA2_256 can be held against the digest; sign \
         with `cosign sign` instead of `cosign sign-blob`", .0.as_ref().map_or("a hash without a name", |hash| &hash.0)
    )]
    Hash(Option<Shown>),
    #[error("the rule wants the annotation `{name}` to be `{wanted}`, and {}", Found(found))]
    Annotation { name: String, wanted: String, found: Option<Shown> },
}

impl RejectReason {
    /// Whether the candidate is not a signature, rather than a bad one.
    fn is_skip(&self) -> bool {
        matches!(self, Self::Attestation(_))
    }
}

struct Found<'a>(&'a Option<Shown>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(found) => write!(f, "it is {found}"),
            None => f.write_str("the signature does not have it"),
        }
    }
}

struct Names<I>(I);

impl<'a, I: Iterator<Item = &'a NamedKey> + Clone> fmt::Display for Names<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, named) in self.0.clone().enumerate() {
            write!(f, "{}`{}`", if index == 0 { "" } else { ", " }, named.name)?;
        }
        Ok(())
    }
}

/// Third-party text for messages: in quotes, on one line, without terminal control characters, shortened.
#[derive(Debug)]
pub(super) struct Shown(String);

impl Shown {
    const MAX: usize = 120;

    pub(super) fn new(text: &str) -> Self {
        let is_longer = text.chars().nth(Self::MAX).is_some();
        let start: String = text.chars().take(Self::MAX).flat_map(char::escape_debug).collect();
        Self(format!("`{start}{}`", if is_longer { "…" } else { "" }))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses third-party JSON.
pub(super) fn json<'a, T: serde::Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, RejectReason> {
    serde_json::from_slice(bytes).map_err(|error| RejectReason::Json { what, error: Shown::new(&error.to_string()) })
}

/// Decodes base64 of either alphabet: DSSE allows both.
pub(super) fn base64(what: &'static str, text: &str) -> Result<Vec<u8>, RejectReason> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).map_err(|_| RejectReason::Base64(what))
}

/// The signed annotations with string values. cosign writes `null` if there are none.
pub(super) fn annotations(signed: Option<Map<String, Value>>) -> BTreeMap<String, String> {
    let signed = signed.unwrap_or_default().into_iter();
    signed.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect()
}

/// Replaces Docker Hub's other name by the one that references use.
pub(super) fn docker_reference(repository: &str) -> Cow<'_, str> {
    match repository.strip_prefix("index.docker.io/") {
        Some(path) => Cow::Owned(format!("docker.io/{path}")),
        None => Cow::Borrowed(repository),
    }
}

#[cfg(test)]
mod tests;
