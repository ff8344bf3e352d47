use super::signer::Signer;
use super::*;

fn policy(text: &str) -> TrustPolicy {
    serde_saphyr::from_str(text).unwrap()
}

/// Reads a key by the name of its file.
fn read(path: &Path) -> io::Result<String> {
    match path.to_str().unwrap() {
        "/keys/a.pub" => Ok(Signer::p256(1).pem()),
        "/keys/b.pub" => Ok(Signer::p384(2).pem()),
        "/keys/c.pub" => Ok(Signer::ed25519(3).pem()),
        "/keys/none.pub" => Ok("nothing".to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn trust(text: &str) -> Trust {
    policy(text).resolve(read).unwrap()
}

fn refused(text: &str) -> String {
    policy(text).resolve(read).unwrap_err().to_string()
}

const KEY: &str = "keys: [{name: a, path: /keys/a.pub}]";

#[test]
fn a_policy_reads_as_it_is_written_in_the_manual() {
    let text = r#"
- pattern: "registry.example.com/policies/*"
  keys:
    - name: release
      path: /keys/a.pub
    - name: reviewer
      pem: |
PEM
  require: {atLeast: 2}
  annotations: {channel: stable}
  dockerReference: true
- pattern: "localhost:5000/*"
  unsigned: true
- pattern: "*"
  keys: [{name: release, path: /keys/a.pub}]
  require: all
"#;
    let pem: String = Signer::ed25519(3).pem().lines().map(|line| format!("        {line}\n")).collect();
    let policy = policy(&text.replace("PEM\n", &pem));
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<TrustPolicy>(&json).unwrap(), policy);
    let trust = policy.resolve(read).unwrap();
    let Decision::Rule(rule) = trust.rule_for("registry.example.com/policies/demo") else { panic!() };
    let keys: Vec<_> = rule.keys().map(|(name, key)| (name, key.algorithm())).collect();
    assert_eq!(keys, [("release", "ECDSA P-256"), ("reviewer", "Ed25519")]);
    assert_eq!((rule.needed(), rule.docker_reference), (2, true));
    assert_eq!(rule.annotations, BTreeMap::from([("channel".to_owned(), "stable".to_owned())]));
}

#[test]
fn an_unknown_field_is_refused() {
    for text in
        ["[{pattern: a/b, key: x}]", "[{pattern: a/b, keys: [{name: a, file: x}]}]", "[{pattern: a/b, require: most}]"]
    {
        assert!(serde_saphyr::from_str::<TrustPolicy>(text).is_err(), "{text}");
    }
}

#[test]
fn without_rules_nothing_is_checked_and_with_rules_the_rest_is_denied() {
    assert!(matches!(Trust::default().rule_for("r.io/a"), Decision::Unchecked));
    assert!(matches!(trust("[]").rule_for("r.io/a"), Decision::Unchecked));
    let trust = trust("[{pattern: r.io/open/*, unsigned: true}]");
    assert!(matches!(trust.rule_for("r.io/open/a"), Decision::Unsigned));
    for denied in ["r.io/a", "r.io/open", "x.r.io/open/a", ""] {
        assert!(matches!(trust.rule_for(denied), Decision::Denied), "{denied}");
    }
}

#[test]
fn the_longest_pattern_counts_wherever_it_stands() {
    let rules = [
        format!("{{pattern: '*', {KEY}}}"),
        format!("{{pattern: 'r.io/team/*', {KEY}}}"),
        "{pattern: 'r.io/*', unsigned: true}".to_owned(),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let trust = trust(&format!("[{}]", order.map(|index| rules[index].as_str()).join(", ")));
        for (repository, pattern) in [("r.io/team/a", Some("r.io/team/*")), ("r.io/b", None), ("x.io/c", Some("*"))] {
            let found = match trust.rule_for(repository) {
                Decision::Rule(rule) => Some(rule.pattern()),
                _ => None,
            };
            assert_eq!(found, pattern, "{repository}");
        }
    }
}

#[test]
fn two_patterns_of_one_length_for_the_same_artefacts_are_refused() {
    let error = refused(&format!(
        "[{{pattern: r.io/a*, {KEY}}}, {{pattern: r.io/b*, {KEY}}}, {{pattern: r.io/*a, unsigned: true}}]"
    ));
    assert_eq!(
        error,
        "the trust policy cannot be used: rule 3 (`r.io/*a`), `pattern`: it is as long as the pattern of rule 1 (`r.io/a*`), and \
         some artefacts match both, so that neither counts more; merge the two rules, or make one pattern longer"
    );
    assert!(
        refused(&format!("[{{pattern: r.io/a, {KEY}}}, {{pattern: r.io/a, {KEY}}}]")).contains("rule 2 (`r.io/a`)")
    );
}

#[test]
fn each_broken_rule_is_named_with_its_field_and_key() {
    for (rule, expected) in [
        (
            "pattern: r.io/a",
            "`keys`: there is none, so that nothing would be let in; list keys, or write `unsigned: true`",
        ),
        ("pattern: r.io/a, keys: []", "`keys`: there is none"),
        ("pattern: r.io/a:1, unsigned: true", "`pattern`: leave out the tag"),
        ("pattern: r.io/a, unsigned: true, keys: [{name: a, path: /keys/a.pub}]", "`keys`: it means nothing beside"),
        ("pattern: r.io/a, unsigned: true, require: all", "`require`: it means nothing beside"),
        ("pattern: r.io/a, unsigned: true, annotations: {a: b}", "`annotations`: it means nothing beside"),
        ("pattern: r.io/a, unsigned: true, dockerReference: true", "`dockerReference`: it means nothing beside"),
        ("pattern: r.io/a, require: {atLeast: 0}, keys: [{name: a, path: /keys/a.pub}]", "`require`: 0 signatures"),
        ("pattern: r.io/a, keys: [{name: a}]", "key `a`, `pem`: give the key either"),
        ("pattern: r.io/a, keys: [{name: a, pem: x, path: y}]", "key `a`, `pem`: there is a `path` too"),
        ("pattern: r.io/a, keys: [{name: '', path: /keys/a.pub}]", "key `1`, `name`: each key needs a name"),
        (
            "pattern: r.io/a, keys: [{name: a, path: /keys/a.pub}, {name: a, path: /keys/b.pub}]",
            "key `a`, `name`: another key has the same name",
        ),
        (
            "pattern: r.io/a, keys: [{name: a, path: /keys/x.pub}]",
            "key `a`, `path`: /keys/x.pub cannot be read (entity not found); mount it",
        ),
        ("pattern: r.io/a, keys: [{name: a, path: /keys/none.pub}]", "key `a`, `path`: /keys/none.pub: this is no PEM"),
        ("pattern: r.io/a, keys: [{name: a, pem: x}]", "key `a`, `pem`: this is no PEM"),
    ] {
        let error = refused(&format!("[{{pattern: x.io/x, {KEY}}}, {{{rule}}}]"));
        assert!(error.contains("rule 2 (`r.io/a") && error.contains(expected), "{rule}: {error}");
    }
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let error =
        policy("[{pattern: r.io, keys: [{name: a}, {name: b, pem: x}]}, {pattern: r.io/b}]").resolve(read).unwrap_err();
    let places: Vec<_> = error.faults.iter().map(|fault| (fault.rule, fault.key.as_deref(), fault.field)).collect();
    assert_eq!(places, [(1, None, "pattern"), (1, Some("a"), "pem"), (1, Some("b"), "pem"), (2, None, "keys")]);
}

#[test]
fn the_same_key_under_two_names_is_not_two_signers() {
    let twice = "keys: [{name: a, path: /keys/a.pub}, {name: b, path: /keys/a.pub}]";
    let error = refused(&format!("[{{pattern: r.io/a, {twice}, require: {{atLeast: 2}}}}]"));
    assert!(error.contains("`require`: 2 signatures by different keys are wanted, and 1 are listed"), "{error}");
    let trust = trust(&format!("[{{pattern: r.io/a, {twice}, require: all}}]"));
    let Decision::Rule(rule) = trust.rule_for("r.io/a") else { panic!() };
    assert_eq!(rule.keys().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn the_hash_changes_with_what_decides_and_with_nothing_else() {
    let two = "keys: [{name: a, path: /keys/a.pub}, {name: b, path: /keys/b.pub}]";
    let base = trust(&format!("[{{pattern: r.io/a, {two}}}, {{pattern: r.io/*/b, {KEY}}}]")).hash();
    let renamed = "keys: [{name: y, path: /keys/b.pub}, {name: x, path: /keys/a.pub}]";
    assert_eq!(trust(&format!("[{{pattern: r.io/*/b, {KEY}}}, {{pattern: r.io/a, {renamed}}}]")).hash(), base);
    let mut hashes = BTreeSet::from([base]);
    for rules in [
        "".to_owned(),
        format!("{{pattern: r.io/a, {two}}}"),
        format!("{{pattern: r.io/b, {two}}}"),
        format!("{{pattern: r.io/a, {KEY}}}"),
        format!("{{pattern: r.io/a, {two}, require: all}}"),
        format!("{{pattern: r.io/a, {two}, require: {{atLeast: 2}}}}"),
        format!("{{pattern: r.io/a, {two}, annotations: {{a: b}}}}"),
        format!("{{pattern: r.io/a, {two}, annotations: {{a: c}}}}"),
        format!("{{pattern: r.io/a, {two}, dockerReference: true}}"),
        "{pattern: r.io/a, unsigned: true}".to_owned(),
    ] {
        assert!(hashes.insert(trust(&format!("[{rules}]")).hash()), "{rules}");
    }
}

#[test]
fn keys_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pub");
    std::fs::write(&path, Signer::p256(1).pem()).unwrap();
    let key = TrustKey { name: "a".to_owned(), pem: None, path: Some(path.clone()) };
    let rule = TrustRule {
        pattern: "r.io/a".to_owned(),
        keys: vec![key],
        require: Require::Any,
        annotations: BTreeMap::new(),
        docker_reference: false,
        unsigned: false,
    };
    let policy = TrustPolicy { rules: vec![rule] };
    assert!(matches!(Trust::load(&policy).unwrap().rule_for("r.io/a"), Decision::Rule(_)));
    std::fs::remove_file(&path).unwrap();
    assert!(Trust::load(&policy).unwrap_err().to_string().contains("cannot be read"));
}
