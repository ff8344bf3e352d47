//! Signatures as cosign makes them, in both of its formats.

use serde_json::json;

use crate::artefacts::{Desk, module};
use crate::env::{Keys, crane, env, run};

#[test]
fn what_cosign_signed_counts_in_either_format_and_nothing_else_does() {
    let (ours, theirs) = (Keys::new("ours"), Keys::new("theirs"));
    for (name, host, is_bundle) in [
        ("legacy", &env().plain.host, false),
        ("bundle", &env().plain.host, true),
        ("referrer", &env().referrers.host, true),
    ] {
        let desk = Desk::new();
        let (tag, other) = (format!("{host}/signed/{name}:1"), format!("{host}/signed/{name}:2"));
        let digest = desk.push(&module("cpu-burst"), &tag);
        let image = format!("{host}/signed/{name}@{digest}");
        let refused = |args: &[&str], word: &str| {
            let ran = run(&mut desk.policy(&[&["verify", &image], args].concat()));
            assert_eq!(ran.code, Some(1), "{name} {args:?}: {ran:#?}");
            assert!(format!("{}{}", ran.stdout, ran.stderr).contains(word), "{name} {args:?}: {ran:#?}");
        };
        refused(&["--key", &ours.public()], "no signature");
        theirs.sign(&image, is_bundle, &[]);
        refused(&["--key", &ours.public()], "refused");
        ours.sign(&image, is_bundle, &["channel=stable"]);
        let verified = desk.json(&["verify", &tag, "--key", &ours.public()]);
        assert_eq!(verified["trusted"]["signed"][0]["annotations"]["channel"], "stable", "{verified}");
        desk.json(&["verify", &tag, "--key", &ours.public(), "--key", &theirs.public(), "--all-keys"]);
        desk.json(&["verify", &tag, "--key", &ours.public(), "--signed", "channel=stable"]);
        refused(&["--key", &ours.public(), "--signed", "channel=canary"], "channel");
        let third = Keys::new("third");
        refused(&["--key", &ours.public(), "--key", &third.public(), "--all-keys"], "refused");

        // The signature of one artefact does not count for another, whatever its tag is.
        let another = desk.push(&module("memory-qos"), &other);
        let (signature, moved) = (format!("sha256-{}", &digest[7..]), format!("sha256-{}", &another[7..]));
        let suffix = if is_bundle { "" } else { ".sig" };
        if host == &env().plain.host {
            let names = [signature, moved].map(|tag| format!("{host}/signed/{name}:{tag}{suffix}"));
            run(crane().args(["copy", "--insecure", &names[0], &names[1]])).well();
        }
        let ran = run(&mut desk.policy(&["verify", &other, "--key", &ours.public()]));
        assert_eq!(ran.code, Some(1), "{name}: {ran:#?}");
        let ran = run(&mut desk.policy(&["pull", &other, "--key", &ours.public(), "--to", "other.wasm"]));
        assert!(ran.code == Some(1) && ran.stderr.contains("not trusted"), "{name}: {ran:#?}");
        assert!(!desk.path("other.wasm").exists());
    }
}

#[test]
fn rules_go_by_the_repository_and_what_no_rule_names_is_refused() {
    let (desk, keys, host) = (Desk::new(), Keys::new("rules"), &env().plain.host);
    let digest = desk.push(&module("cpu-burst"), &format!("{host}/team-a/x:1"));
    keys.sign(&format!("{host}/team-a/x@{digest}"), true, &[]);
    for repository in ["team-b/x", "open/x"] {
        desk.push(&module("cpu-burst"), &format!("{host}/{repository}:1"));
    }
    let rules = json!({"verification": [
        {"pattern": format!("{host}/team-a/*"), "keys": [{"name": "release", "path": keys.public()}]},
        {"pattern": format!("{host}/open/*"), "unsigned": true},
    ]});
    std::fs::write(desk.path("registries.yaml"), rules.to_string()).unwrap();
    for (repository, code, word) in [
        ("team-a/x", 0, "signed by release"),
        ("open/x", 0, "unsigned, as a rule allows"),
        ("team-b/x", 1, "no rule of `registries.verification` matches"),
    ] {
        let args = ["pull", &format!("{host}/{repository}:1"), "--to", "x.wasm", "--registries", "registries.yaml"];
        let ran = run(&mut desk.policy(&args));
        assert_eq!(ran.code, Some(code), "{repository}: {ran:#?}");
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(word), "{repository}: {ran:#?}");
    }
}
