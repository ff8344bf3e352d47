use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::signer::{REPOSITORY, Signer, bundle, payload, statement};
use super::super::{Decision, Trust, TrustKey, TrustPolicy, TrustRule};
use super::*;

const MANIFEST: &[u8] = b"{}";

fn subject() -> Digest {
    Digest::of(MANIFEST)
}

fn other() -> Digest {
    Digest::of(b"other")
}

/// A rule with these keys, named `a`, `b`, … in their order.
fn rule(pems: &[String]) -> TrustRule {
    let keys = ('a'..).zip(pems).map(|(name, pem)| TrustKey { name: name.into(), pem: Some(pem.clone()), path: None });
    TrustRule {
        pattern: "*".to_owned(),
        keys: keys.collect(),
        require: Require::Any,
        annotations: BTreeMap::new(),
        docker_reference: false,
        unsigned: false,
    }
}

fn rule_for(signers: &[Signer]) -> TrustRule {
    rule(&signers.iter().map(Signer::pem).collect::<Vec<_>>())
}

fn judged(rule: TrustRule, candidates: &[Candidate]) -> RuleOutcome {
    judged_as(rule, REPOSITORY, &subject(), candidates)
}

fn judged_as(rule: TrustRule, repository: &str, subject: &Digest, candidates: &[Candidate]) -> RuleOutcome {
    let trust: Trust = TrustPolicy { rules: vec![rule] }.resolve(|_: &Path| unreachable!()).unwrap();
    let Decision::Rule(rule) = trust.rule_for(repository) else { panic!() };
    judge(rule, repository, subject, candidates)
}

/// The names of the keys whose signatures count.
fn signers(verdict: &RuleOutcome) -> Vec<&str> {
    verdict.signatures.iter().map(|good| good.key.as_str()).collect()
}

fn refusal(verdict: &RuleOutcome) -> &str {
    match &verdict.outcome {
        Outcome::Refused(reason) => reason,
        Outcome::Accepted => panic!("accepted"),
    }
}

fn accepts(rule: TrustRule, candidates: &[Candidate]) -> bool {
    judged(rule, candidates).outcome == Outcome::Accepted
}

/// Checks that the artefact is refused, with one rejected candidate and this reason.
fn check_rejected(rule: TrustRule, candidate: Candidate, expected: &str) {
    let verdict = judged(rule, &[candidate]);
    assert_eq!(signers(&verdict), [""; 0], "{expected}");
    let [Rejected { why, .. }] = verdict.rejected.as_slice() else { panic!("{expected}: {verdict:?}") };
    assert!(why.contains(expected) && !why.contains('\n'), "{expected}: {why}");
    refusal(&verdict);
}

fn key() -> Signer {
    Signer::p256(1)
}

#[test]
fn each_algorithm_is_accepted_in_both_formats() {
    for signer in [Signer::p256(1), Signer::p384(1), Signer::ed25519ph(1), Signer::ed25519(1)] {
        for candidate in [signer.legacy(&subject(), &[("a", "b")]), signer.bundle(&subject(), &[("a", "b")])] {
            let format = candidate.format;
            let verdict = judged(rule(&[Signer::p256(9).pem(), signer.pem()]), &[candidate]);
            assert_eq!((&verdict.outcome, verdict.rejected.len()), (&Outcome::Accepted, 0));
            let [good] = verdict.signatures.as_slice() else { panic!() };
            assert_eq!((good.key.as_str(), good.format), ("b", format));
            assert_eq!(good.annotations, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        }
    }
}

#[test]
fn no_annotations_are_none() {
    for candidate in [key().legacy(&subject(), &[]), key().bundle(&subject(), &[])] {
        let verdict = judged(rule_for(&[key()]), &[candidate]);
        assert_eq!((verdict.outcome, verdict.signatures[0].annotations.len()), (Outcome::Accepted, 0));
    }
}

#[test]
fn a_rejected_signature_has_a_reason() {
    let blob = |mut candidate: Candidate, from: &str, to: &str| {
        candidate.blob = String::from_utf8(candidate.blob).unwrap().replace(from, to).into_bytes();
        candidate
    };
    let annotated = |value: &str| {
        let mut candidate = key().legacy(&subject(), &[]);
        candidate.annotations.insert("dev.cosignproject.cosign/signature".to_owned(), value.to_owned());
        candidate
    };
    let enveloped = |change: fn(&mut Value)| {
        let mut content = key().envelope(statement(&subject(), &[]).to_string().as_bytes());
        change(&mut content["dsseEnvelope"]);
        bundle(&content)
    };
    let stated = |change: fn(&mut Value)| {
        let mut statement = statement(&subject(), &[]);
        change(&mut statement);
        key().bundle_of(&statement)
    };
    let claimed = |change: fn(&mut Value)| {
        let mut payload = payload(&subject(), &[]);
        change(&mut payload);
        key().legacy_of(&payload)
    };
    for (candidate, expected) in [
        // Another signer.
        (Signer::p256(2).legacy(&subject(), &[]), "no key of the rule (`a`) made it"),
        (Signer::p256(2).bundle(&subject(), &[]), "no key of the rule (`a`) made it"),
        (Signer::ed25519(1).bundle(&subject(), &[]), "no key of the rule (`a`) made it"),
        // Another subject.
        (key().legacy(&other(), &[]), "a signature of another artefact, `sha256:"),
        (key().bundle(&other(), &[]), "a signature of another artefact, `"),
        (key().message(b"other"), "a signature of another artefact, `"),
        (stated(|statement| statement["subject"][0]["digest"] = json!({ "sha512": "12" })), "no `sha256`"),
        (stated(|statement| statement["subject"] = json!([])), "it has 0 subjects, where there must be one"),
        (
            stated(|statement| {
                let subject = statement["subject"][0].clone();
                statement["subject"].as_array_mut().unwrap().push(subject);
            }),
            "it has 2 subjects, where there must be one",
        ),
        // Changed after signing.
        (blob(key().legacy(&other(), &[]), &other().hex(), &subject().hex()), "no key of the rule"),
        (annotated("AAAA"), "no key of the rule"),
        (annotated("*"), "its signature is not base64"),
        (enveloped(|envelope| envelope["payload"] = "e30=".into()), "no key of the rule"),
        (enveloped(|envelope| envelope["payload"] = "*".into()), "its payload is not base64"),
        (enveloped(|envelope| envelope["signatures"][0]["sig"] = "*".into()), "its signature is not base64"),
        // Another structure.
        (enveloped(|envelope| envelope["signatures"] = json!([])), "it has 0 signatures, where there must be one"),
        (
            enveloped(|envelope| {
                let signature = envelope["signatures"][0].clone();
                envelope["signatures"].as_array_mut().unwrap().push(signature);
            }),
            "it has 2 signatures, where there must be one",
        ),
        (enveloped(|envelope| envelope["payloadType"] = "text/plain".into()), "its payloadType is `text/plain`"),
        (
            stated(|statement| statement["_type"] = "https://in-toto.io/Statement/v0.1".into()),
            "its _type is `https://in",
        ),
        (stated(|statement| statement["subject"] = json!(null)), "its statement is not the JSON that it should be"),
        (claimed(|payload| payload["critical"]["type"] = "atomic container signature".into()), "its type is `atomic"),
        (claimed(|payload| payload["critical"] = json!(null)), "its payload is not the JSON that it should be"),
        (bundle(&json!({})), "there is no `dsseEnvelope` or `messageSignature`"),
        (bundle(&json!({ "mediaType": "application/vnd.dev.sigstore.bundle.v0.4+json" })), "bundle.v0.4+json` are no"),
        (blob(key().bundle(&subject(), &[]), "{", "["), "its bundle is not the JSON that it should be"),
        (
            Candidate { media_type: "application/vnd.oci.image.layer.v1.tar\u{1b}[0m\n".to_owned(), ..annotated("") },
            r"layers of the type `application/vnd.oci.image.layer.v1.tar\u{1b}[0m\n` are no signatures",
        ),
        (Candidate { annotations: BTreeMap::new(), ..annotated("") }, "there is no annotation with a signature"),
        (Candidate { blob: vec![b' '; MAX_BLOB + 1], ..annotated("") }, "it has 262145 bytes, more than the 262144"),
        // Keyless.
        (
            bundle(&json!({
                "verificationMaterial": { "certificate": { "rawBytes": "" } },
                "dsseEnvelope": Signer::p256(2).envelope(b"{}")["dsseEnvelope"],
            })),
            "came with a certificate (keyless), and only signatures by a key are read",
        ),
    ] {
        check_rejected(rule_for(&[key()]), candidate, expected);
    }
}

#[test]
fn a_keyless_signature_of_the_old_format_is_named_as_one() {
    let mut candidate = Signer::p256(2).legacy(&subject(), &[]);
    candidate.annotations.insert("dev.sigstore.cosign/certificate".to_owned(), String::new());
    check_rejected(rule_for(&[key()]), candidate, "came with a certificate (keyless)");
}

#[test]
fn both_contents_in_one_bundle_are_refused_though_each_is_good() {
    let mut content = key().envelope(statement(&subject(), &[]).to_string().as_bytes());
    let message: Value = serde_json::from_slice(&key().message(MANIFEST).blob).unwrap();
    content["messageSignature"] = message["messageSignature"].clone();
    check_rejected(rule_for(&[key()]), bundle(&content), "it has 2 signatures");
}

#[test]
fn a_signature_of_the_manifest_itself_counts_for_p256() {
    assert!(accepts(rule_for(&[key()]), &[key().message(MANIFEST)]));
    check_rejected(rule_for(&[Signer::p384(1)]), Signer::p384(1).message(MANIFEST), "no key of the rule");
    check_rejected(rule_for(&[Signer::ed25519(1)]), Signer::ed25519(1).message(MANIFEST), "no key of the rule");
    let annotated = TrustRule { annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..rule_for(&[key()]) };
    check_rejected(annotated, key().message(MANIFEST), "the signature does not have it");
}

#[test]
fn the_media_type_may_have_its_version_as_a_parameter() {
    for (media_type, expected) in [
        ("application/vnd.dev.sigstore.bundle.v0.3+json", Some(Format::Bundle)),
        ("application/vnd.dev.sigstore.bundle.v0.3.1+json", Some(Format::Bundle)),
        ("application/vnd.dev.sigstore.bundle+json;version=0.3", Some(Format::Bundle)),
        ("application/vnd.dev.sigstore.bundle+json; version=0.3", Some(Format::Bundle)),
        ("application/vnd.dev.sigstore.bundle+json;version=0.2", None),
        ("application/vnd.dev.sigstore.bundle.v0.30+json", None),
        ("application/vnd.dev.cosign.simplesigning.v1+json", Some(Format::Legacy)),
        ("application/vnd.dsse.envelope.v1+json", None),
        ("", None),
    ] {
        assert_eq!(Format::of_layer(media_type), expected, "{media_type}");
        if expected == Some(Format::Bundle) {
            let mut content = key().envelope(statement(&subject(), &[]).to_string().as_bytes());
            content["mediaType"] = media_type.into();
            let candidate = Candidate { media_type: media_type.to_owned(), ..bundle(&content) };
            assert!(accepts(rule_for(&[key()]), &[candidate]), "{media_type}");
        }
    }
}

#[test]
fn the_hint_decides_nothing() {
    let mut content = key().envelope(statement(&subject(), &[]).to_string().as_bytes());
    for hint in [json!({ "hint": "OL2Fi9aDZVO5fMpfObesd2pwYT+7P3z/w3G2XJMsLAM=" }), json!({}), json!(null)] {
        content["verificationMaterial"] = json!({ "publicKey": hint });
        let verdict = judged(rule_for(&[Signer::p256(2), key()]), &[bundle(&content)]);
        assert_eq!(signers(&verdict), ["b"], "{hint}");
    }
}

#[test]
fn without_signatures_it_is_refused_with_the_command_that_signs() {
    let annotations = BTreeMap::from([("channel".to_owned(), "stable".to_owned())]);
    let verdict = judged(TrustRule { annotations, ..rule_for(&[key(), Signer::p256(2)]) }, &[]);
    let expected = format!(
        "it has no signature, and rule `*` wants it signed by one of `a`, `b`; have it signed by `a`, `b`: `cosign sign --key KEY -a \
         channel=stable {REPOSITORY}@{}`",
        subject()
    );
    assert_eq!(refusal(&verdict), expected);
    let verdict = judged_as(rule_for(&[key()]), "oci-layout:/media/policies", &subject(), &[]);
    assert_eq!(
        refusal(&verdict),
        "it has no signature, and rule `*` wants it signed by `a`; have it signed by `a`: sign it in a registry, and copy it from there \
         with `qosm policy copy`"
    );
}

#[test]
fn attestations_are_skipped_whoever_made_them() {
    for signer in [key(), Signer::p256(2)] {
        let mut statement = statement(&subject(), &[]);
        statement["_type"] = "https://in-toto.io/Statement/v0.1".into();
        statement["predicateType"] = "https://slsa.dev/provenance/v1".into();
        let attestation = signer.bundle_of(&statement);
        let verdict = judged(rule_for(&[key()]), std::slice::from_ref(&attestation));
        assert_eq!(
            verdict.rejected[0].why,
            "skipped: an attestation (`https://slsa.dev/provenance/v1`), not a signature"
        );
        assert!(refusal(&verdict).starts_with("it has attestations and no signature, and rule"));
        assert!(accepts(rule_for(&[key()]), &[attestation, key().bundle(&subject(), &[])]));
    }
}

#[test]
fn bad_signatures_beside_a_good_one_do_no_harm() {
    let bad = Signer::p256(2).legacy(&subject(), &[]);
    let good = key().legacy(&subject(), &[]);
    for candidates in [[bad.clone(), good.clone()], [good, bad.clone()]] {
        let verdict = judged(rule_for(&[key()]), &candidates);
        assert_eq!((&verdict.outcome, verdict.rejected.len()), (&Outcome::Accepted, 1));
    }
    let verdict = judged(rule_for(&[key()]), &[bad.clone(), bad.clone()]);
    assert!(
        refusal(&verdict).starts_with("none of its 2 signatures counts (the first: no key of the rule (`a`) made it)")
    );
    let verdict = judged(rule_for(&[key()]), &[bad]);
    assert!(refusal(&verdict).starts_with("its signature does not count (no key"), "{verdict:?}");
}

#[test]
fn different_keys_count_and_not_signatures() {
    let [a, b, c] = [Signer::p256(1), Signer::p384(2), Signer::ed25519ph(3)];
    let [by_a, by_b, by_c] = [&a, &b, &c].map(|signer| signer.bundle(&subject(), &[]));
    let also_by_a = a.legacy(&subject(), &[]);
    for (require, candidates, expected) in [
        (Require::Any, vec![&by_c], true),
        (Require::AtLeast(1), vec![&by_b], true),
        (Require::AtLeast(2), vec![&by_a], false),
        (Require::AtLeast(2), vec![&by_a, &by_a, &also_by_a], false),
        (Require::AtLeast(2), vec![&also_by_a, &by_c], true),
        (Require::All, vec![&by_a, &by_b, &also_by_a], false),
        (Require::All, vec![&by_c, &by_b, &by_a], true),
    ] {
        let candidates: Vec<_> = candidates.into_iter().cloned().collect();
        let rule = TrustRule { require, ..rule(&[a.pem(), b.pem(), c.pem()]) };
        assert_eq!(accepts(rule, &candidates), expected, "{require:?}");
    }
    let verdict =
        judged(TrustRule { require: Require::AtLeast(2), ..rule(&[a.pem(), b.pem(), c.pem()]) }, &[by_a, also_by_a]);
    assert_eq!(signers(&verdict), ["a", "a"]);
    assert!(
        refusal(&verdict)
            .starts_with("it is signed by `a` alone, and rule `*` wants it signed by 2 of `a`, `b`, `c`; have it signed by `b`, `c`: "),
        "{verdict:?}"
    );
}

#[test]
fn one_key_under_two_names_is_one_signer() {
    let pems = [key().pem(), key().pem(), Signer::p256(2).pem()];
    let rule = TrustRule { require: Require::AtLeast(2), ..rule(&pems) };
    let candidates = [key().legacy(&subject(), &[]), key().bundle(&subject(), &[])];
    assert!(!accepts(rule.clone(), &candidates));
    assert!(accepts(rule, &[candidates[0].clone(), Signer::p256(2).bundle(&subject(), &[])]));
}

#[test]
fn only_signatures_with_all_annotations_of_the_rule_count() {
    let wanted = BTreeMap::from([("channel", "stable"), ("team", "node")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    let rule = TrustRule { annotations: wanted, ..rule_for(&[key()]) };
    for (annotations, expected) in [
        (vec![], "the rule wants the annotation `channel` to be `stable`, and the signature does not have it"),
        (
            vec![("channel", "stable")],
            "the rule wants the annotation `team` to be `node`, and the signature does not have it",
        ),
        (
            vec![("channel", "beta"), ("team", "node")],
            "the rule wants the annotation `channel` to be `stable`, and it is `beta`",
        ),
    ] {
        check_rejected(rule.clone(), key().legacy(&subject(), &annotations), expected);
        check_rejected(rule.clone(), key().bundle(&subject(), &annotations), expected);
    }
    let more = [("channel", "stable"), ("team", "node"), ("x", "y")];
    assert!(accepts(rule.clone(), &[key().legacy(&subject(), &more)]));
    assert!(accepts(rule.clone(), &[key().bundle(&subject(), &more)]));
    // The annotations of a layer are not signed.
    let mut unsigned = key().legacy(&subject(), &[]);
    unsigned.annotations.extend(rule.annotations.clone());
    check_rejected(rule, unsigned, "the signature does not have it");
}

#[test]
fn the_repository_counts_only_where_the_rule_says_so_and_in_the_old_format() {
    let lenient = rule_for(&[key()]);
    let strict = TrustRule { docker_reference: true, ..lenient.clone() };
    let mirror = "mirror.example.com/policies/demo";
    for candidate in [key().legacy(&subject(), &[]), key().bundle(&subject(), &[])] {
        let is_old = candidate.format == Format::Legacy;
        for (rule, repository, expected) in
            [(&lenient, mirror, true), (&strict, REPOSITORY, true), (&strict, mirror, !is_old)]
        {
            let verdict = judged_as(rule.clone(), repository, &subject(), std::slice::from_ref(&candidate));
            assert_eq!(verdict.outcome == Outcome::Accepted, expected, "{repository} {verdict:?}");
        }
    }
    let mut hub = payload(&subject(), &[]);
    hub["critical"]["identity"]["docker-reference"] = "index.docker.io/acme/demo".into();
    let verdict = judged_as(strict.clone(), "docker.io/acme/demo", &subject(), &[key().legacy_of(&hub)]);
    assert_eq!(verdict.outcome, Outcome::Accepted);
    hub["critical"]["identity"] = json!({});
    check_rejected(
        strict,
        key().legacy_of(&hub),
        "it was made for the repository ``, and the rule says `dockerReference: true`",
    );
}

#[test]
fn no_more_candidates_are_checked_than_the_limit() {
    let bad = Signer::p256(2).bundle(&subject(), &[]);
    let mut candidates = vec![bad; MAX_CANDIDATES];
    candidates.extend([key().bundle(&subject(), &[]), key().bundle(&subject(), &[])]);
    let verdict = judged(rule_for(&[key()]), &candidates);
    refusal(&verdict);
    assert_eq!(verdict.rejected.len(), MAX_CANDIDATES + 1);
    assert_eq!(
        verdict.rejected[MAX_CANDIDATES].why,
        "this and all after it are not checked: 64 candidates are the limit"
    );
    assert!(accepts(rule_for(&[key()]), &candidates[1..]));
}

#[test]
fn the_last_signatures_of_an_old_manifest_are_checked() {
    let (good, bad) = (key().legacy(&subject(), &[]), Signer::p256(2).legacy(&subject(), &[]));
    let mut candidates = vec![good; 1];
    candidates.extend(vec![bad; MAX_SIGNATURES]);
    let verdict = judged(rule_for(&[key()]), &candidates);
    assert_eq!(verdict.rejected[0].why, "not checked: only the last 8 signatures of a manifest are");
    refusal(&verdict);
    candidates.rotate_left(1);
    assert!(accepts(rule_for(&[key()]), &candidates));
    candidates.rotate_right(1);
    candidates[0].origin = "sha256-34.sig".to_owned();
    assert!(accepts(rule_for(&[key()]), &candidates));
}

#[test]
fn a_verdict_is_written_for_programs_too() {
    let candidates = [key().legacy(&subject(), &[("a", "b")]), Signer::p256(2).bundle(&subject(), &[])];
    let fingerprint = super::super::PublicKey::from_pem(&key().pem()).unwrap().fingerprint();
    assert_eq!(
        serde_json::to_value(judged(rule_for(&[key()]), &candidates)).unwrap(),
        json!({
            "outcome": "accepted",
            "signatures": [{
                "key": "a", "fingerprint": fingerprint, "format": "legacy", "annotations": { "a": "b" }, "origin": "sha256-12.sig",
            }],
            "rejected": [{ "origin": "sha256:12", "why": "no key of the rule (`a`) made it" }],
        })
    );
    assert!(serde_json::to_value(judged(rule_for(&[key()]), &[])).unwrap()["outcome"]["refused"].is_string());
}

mod cosign;
