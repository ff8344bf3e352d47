//! Signatures made by cosign v3.1.3: see the folder's README.

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cosign/", $name)).as_slice()
    };
}

struct Fixture {
    name: &'static str,
    key: &'static [u8],
    bundle: &'static [u8],
    legacy: &'static [u8],
    legacy_manifest: &'static [u8],
    message: &'static [u8],
}

const P256: Fixture = Fixture {
    name: "p256",
    key: fixture!("p256.pub"),
    bundle: fixture!("p256.bundle.json"),
    legacy: fixture!("p256.legacy.json"),
    legacy_manifest: fixture!("p256.legacy.manifest.json"),
    message: fixture!("p256.message.json"),
};
const P384: Fixture = Fixture {
    name: "p384",
    key: fixture!("p384.pub"),
    bundle: fixture!("p384.bundle.json"),
    legacy: fixture!("p384.legacy.json"),
    legacy_manifest: fixture!("p384.legacy.manifest.json"),
    message: fixture!("p384.message.json"),
};
const ED25519: Fixture = Fixture {
    name: "ed25519",
    key: fixture!("ed25519.pub"),
    bundle: fixture!("ed25519.bundle.json"),
    legacy: fixture!("ed25519.legacy.json"),
    legacy_manifest: fixture!("ed25519.legacy.manifest.json"),
    message: fixture!("ed25519.message.json"),
};

fn manifest() -> Digest {
    Digest::of(fixture!("manifest.json"))
}

impl Fixture {
    fn rule(&self) -> TrustRule {
        let annotations = BTreeMap::from([("channel".to_owned(), "stable".to_owned())]);
        TrustRule { annotations, docker_reference: true, ..rule(&[String::from_utf8(self.key.to_vec()).unwrap()]) }
    }

    fn judge(&self, rule: TrustRule, subject: &Digest, candidate: Candidate) -> RuleOutcome {
        judged_as(rule, &format!("127.0.0.1:5079/policies/{}", self.name), subject, &[candidate])
    }
}

fn legacy(blob: &[u8], manifest: &[u8]) -> Candidate {
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    let layer = &manifest["layers"][0];
    assert_eq!(layer["digest"], Digest::of(blob).to_string());
    Candidate {
        origin: "sha256-12.sig".to_owned(),
        format: Format::of_layer(layer["mediaType"].as_str().unwrap()).unwrap(),
        blob: blob.to_vec(),
        annotations: serde_json::from_value(layer["annotations"].clone()).unwrap(),
        media_type: layer["mediaType"].as_str().unwrap().to_owned(),
    }
}

fn bundle(blob: &[u8]) -> Candidate {
    let media_type = "application/vnd.dev.sigstore.bundle.v0.3+json".to_owned();
    let (origin, annotations) = ("sha256:12".to_owned(), BTreeMap::new());
    Candidate { origin, format: Format::Bundle, blob: blob.to_vec(), annotations, media_type }
}

#[test]
fn what_cosign_signs_is_accepted_and_counts_for_nothing_else() {
    for fixture in [P256, P384, ED25519] {
        for candidate in [bundle(fixture.bundle), legacy(fixture.legacy, fixture.legacy_manifest)] {
            let verdict = fixture.judge(fixture.rule(), &manifest(), candidate.clone());
            assert_eq!(verdict.outcome, Outcome::Accepted, "{} {:?}", fixture.name, candidate.format);
            assert_eq!(verdict.signatures[0].annotations["channel"], "stable");
            let verdict = fixture.judge(fixture.rule(), &other(), candidate.clone());
            assert!(verdict.rejected[0].why.contains("another artefact"), "{verdict:?}");
            for stranger in [P256, P384, ED25519].iter().filter(|stranger| stranger.name != fixture.name) {
                let verdict = fixture.judge(stranger.rule(), &manifest(), candidate.clone());
                assert!(verdict.rejected[0].why.contains("no key of the rule"), "{verdict:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn one_changed_byte_never_changes_what_is_believed(at: prop::sample::Index, to: u8) {
        let changed = |mut candidate: Candidate| {
            let at = at.index(candidate.blob.len());
            candidate.blob[at] = to;
            candidate
        };
        for candidate in [bundle(P256.bundle), legacy(P256.legacy, P256.legacy_manifest)] {
            let honest = P256.judge(P256.rule(), &manifest(), candidate.clone());
            let verdict = P256.judge(P256.rule(), &manifest(), changed(candidate));
            // The hint of a bundle is not signed.
            if verdict.outcome == Outcome::Accepted {
                prop_assert_eq!(verdict.signatures, honest.signatures);
            } else {
                prop_assert_eq!(verdict.rejected.len(), 1);
            }
        }
    }
}

#[test]
fn cosigns_hint_is_the_keys() {
    for fixture in [P256, P384, ED25519] {
        let key = super::super::super::PublicKey::from_pem(std::str::from_utf8(fixture.key).unwrap()).unwrap();
        let bundle: Value = serde_json::from_slice(fixture.bundle).unwrap();
        assert_eq!(bundle["verificationMaterial"]["publicKey"]["hint"], key.hint());
    }
}

#[test]
fn no_annotations_are_none() {
    let candidate = legacy(fixture!("p256.plain.legacy.json"), fixture!("p256.plain.legacy.manifest.json"));
    assert!(std::str::from_utf8(&candidate.blob).unwrap().contains(r#""optional":null"#));
    let rule = TrustRule { annotations: BTreeMap::new(), docker_reference: false, ..P256.rule() };
    assert_eq!(P256.judge(rule, &manifest(), candidate).outcome, Outcome::Accepted);
}

#[test]
fn an_attestation_by_the_right_key_is_no_signature() {
    let verdict = P256.judge(P256.rule(), &manifest(), bundle(fixture!("p256.attestation.bundle.json")));
    assert!(
        verdict.rejected[0].why.starts_with("skipped: an attestation (`https://cosign.sigstore.dev/"),
        "{verdict:?}"
    );
    refusal(&verdict);
}

#[test]
fn a_signature_of_the_manifest_as_a_file_counts_where_it_can_be_checked() {
    let plain = |fixture: &Fixture| TrustRule { annotations: BTreeMap::new(), ..fixture.rule() };
    assert_eq!(P256.judge(plain(&P256), &manifest(), bundle(P256.message)).outcome, Outcome::Accepted);
    for (fixture, expected) in [(P384, "by `SHA2_384`"), (ED25519, "by a hash without a name")] {
        let verdict = fixture.judge(plain(&fixture), &manifest(), bundle(fixture.message));
        assert!(verdict.rejected[0].why.contains(expected), "{verdict:?}");
    }
}
