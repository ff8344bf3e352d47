//! Trust: which artefacts must be signed, and by which keys.
//!
//! A [`TrustPolicy`] is the configuration. [`Trust`] is its checked form, with all keys read; there is no partial one. It has the
//! [`Rule`] of each repository, and [`judge`] checks an artefact's signatures against that rule. Nothing here talks to a
//! registry: the caller passes the signatures, and must not treat an unreachable registry as one without signatures.

mod bundle;
mod fault;
mod key;
mod legacy;
mod pattern;
mod signature;
#[cfg(test)]
mod signer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use qosm_model::digest::Digest;
use serde::{Deserialize, Serialize};

pub use fault::{TrustError, TrustFault, TrustProblem};
pub use key::{KeyError, PublicKey};
pub use signature::{
    Candidate, Format, Good, MAX_BLOB, MAX_CANDIDATES, MAX_SIGNATURES, Outcome, Rejected, RuleOutcome, judge,
};

/// Maximum size of a key file, in bytes: it excludes a device or a log that is named by mistake.
const MAX_KEY_FILE: u64 = 64 << 10;

/// The operator's rules as written. Without rules nothing is checked; with rules, an artefact that matches none is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustPolicy {
    /// The rules; their order does not matter.
    pub rules: Vec<TrustRule>,
}

/// Keys that must have signed the artefacts of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TrustRule {
    /// Matches `REGISTRY/REPOSITORY`, or `oci-layout:PATH`, without tag or digest; `*` matches any characters. The longest matching
    /// pattern counts.
    pub pattern: String,
    /// The keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<TrustKey>,
    /// How many of the keys must have signed.
    #[serde(default)]
    pub require: Require,
    /// Annotations that a signature must have signed to count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whether a signature of the old format must name this repository. Off by default, because a mirror has another name.
    #[serde(default)]
    pub docker_reference: bool,
    /// Whether these artefacts are accepted without a signature.
    #[serde(default)]
    pub unsigned: bool,
}

/// A key under the name that reports use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TrustKey {
    /// The name.
    pub name: String,
    /// The key itself, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<String>,
    /// The file with the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// How many of a rule's keys must have signed. Different keys count, not entries or signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Require {
    /// Any one key.
    #[default]
    Any,
    /// All keys.
    All,
    /// This many keys.
    AtLeast(usize),
}

/// The operator's rules with all keys read. The default has no rules and checks nothing.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Sorted by length of the pattern, the longest first.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Unsigned { pattern: String },
    Signed(Rule),
}

/// A [`TrustRule`] with its keys read.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: String,
    /// At least one; each key once.
    keys: Vec<NamedKey>,
    require: Require,
    annotations: BTreeMap<String, String>,
    docker_reference: bool,
}

#[derive(Clone, Debug)]
struct NamedKey {
    name: String,
    key: PublicKey,
}

/// The decision of the rules about a repository.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// There are no rules.
    Unchecked,
    /// There are rules, but none for this repository: its artefacts must not be loaded.
    Denied,
    /// A rule accepts it without a signature.
    Unsigned,
    /// Artefacts must be signed as this rule requires.
    Rule(&'a Rule),
}

impl Trust {
    /// Reads the policy's keys from the files that it names.
    ///
    /// # Errors
    ///
    /// [`TrustError`] with all faults.
    pub fn load(policy: &TrustPolicy) -> Result<Self, TrustError> {
        policy.resolve(read_key_file)
    }

    /// The decision about `REGISTRY/REPOSITORY`, as the reference names it (a mirror's own name never counts).
    pub fn rule_for(&self, repository: &str) -> Decision<'_> {
        if self.entries.is_empty() {
            return Decision::Unchecked;
        }
        match self.entries.iter().find(|entry| pattern::is_match(entry.pattern(), repository)) {
            None => Decision::Denied,
            Some(Entry::Unsigned { .. }) => Decision::Unsigned,
            Some(Entry::Signed(rule)) => Decision::Rule(rule),
        }
    }

    /// A hash of the rules' effect. It changes if a decision could change, but not if rules or keys change places, or a key
    /// changes its name or file.
    pub fn hash(&self) -> Digest {
        let rules: BTreeSet<String> = self.entries.iter().map(Entry::canonical).collect();
        Digest::of(format!("qosm trust v1\n{}", rules.into_iter().collect::<Vec<_>>().join("\n")).as_bytes())
    }
}

impl Entry {
    fn pattern(&self) -> &str {
        match self {
            Self::Unsigned { pattern } | Self::Signed(Rule { pattern, .. }) => pattern,
        }
    }

    /// Everything that affects a decision, on one line; different for any two rules.
    fn canonical(&self) -> String {
        match self {
            Self::Unsigned { pattern } => serde_json::json!({ "pattern": pattern, "unsigned": true }),
            Self::Signed(rule) => serde_json::json!({
                "pattern": rule.pattern,
                "keys": rule.keys.iter().map(|named| named.key.fingerprint()).collect::<BTreeSet<_>>(),
                "require": rule.require,
                "annotations": rule.annotations,
                "dockerReference": rule.docker_reference,
            }),
        }
        .to_string()
    }
}

impl Rule {
    /// The pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The keys with their names, each key once.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.keys.iter().map(|named| (named.name.as_str(), &named.key))
    }

    /// How many different keys must have signed.
    fn needed(&self) -> usize {
        match self.require {
            Require::Any => 1,
            Require::All => self.keys.len(),
            Require::AtLeast(number) => number,
        }
    }
}

impl TrustPolicy {
    /// Reads the keys; `read` reads those in files.
    ///
    /// # Errors
    ///
    /// [`TrustError`] with all faults: a pattern that matches nothing, two patterns of one length for the same artefacts, a key
    /// that cannot be read or used, a rule that nothing or everything would satisfy.
    pub fn resolve(&self, mut read: impl FnMut(&Path) -> io::Result<String>) -> Result<Trust, TrustError> {
        let mut faults = Vec::new();
        let mut entries = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let mut report = Report { rule: index + 1, pattern: &rule.pattern, faults: &mut faults };
            if let Some(fault) = pattern::fault(&rule.pattern) {
                report.field("pattern", TrustProblem::Pattern(fault));
            }
            let earlier = self.rules.iter().take(index).enumerate().find(|(_, earlier)| {
                earlier.pattern.len() == rule.pattern.len() && pattern::overlap(&earlier.pattern, &rule.pattern)
            });
            if let Some((number, earlier)) = earlier {
                report.field("pattern", TrustProblem::Tie { rule: number + 1, pattern: earlier.pattern.clone() });
            }
            entries.push(rule.resolve(&mut read, &mut report));
        }
        if !faults.is_empty() {
            return Err(TrustError { faults });
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.pattern().len()));
        Ok(Trust { entries })
    }
}

impl TrustRule {
    fn resolve(&self, read: &mut impl FnMut(&Path) -> io::Result<String>, report: &mut Report<'_>) -> Entry {
        if self.unsigned {
            for (field, is_used) in [
                ("keys", !self.keys.is_empty()),
                ("require", self.require != Require::default()),
                ("annotations", !self.annotations.is_empty()),
                ("dockerReference", self.docker_reference),
            ] {
                if is_used {
                    report.field(field, TrustProblem::BesideUnsigned);
                }
            }
            return Entry::Unsigned { pattern: self.pattern.clone() };
        }
        let mut keys: Vec<NamedKey> = Vec::new();
        let mut is_complete = !self.keys.is_empty();
        if self.keys.is_empty() {
            report.field("keys", TrustProblem::NoKeys);
        }
        for (index, entry) in self.keys.iter().enumerate() {
            let name = entry.name.trim();
            let shown = if name.is_empty() { (index + 1).to_string() } else { name.to_owned() };
            if name.is_empty() {
                report.key(&shown, "name", TrustProblem::NoName);
            } else if self.keys.iter().take(index).any(|earlier| earlier.name.trim() == name) {
                report.key(&shown, "name", TrustProblem::NameTwice);
            }
            match entry.resolve(read) {
                // The same key under two names must not count as two signers.
                Ok(key) if keys.iter().any(|known| known.key == key) => {}
                Ok(key) => keys.push(NamedKey { name: name.to_owned(), key }),
                Err((field, problem)) => {
                    is_complete = false;
                    report.key(&shown, field, problem);
                }
            }
        }
        match self.require {
            Require::AtLeast(0) => report.field("require", TrustProblem::Nothing),
            Require::AtLeast(wanted) if is_complete && wanted > keys.len() => {
                report.field("require", TrustProblem::TooMany { wanted, distinct: keys.len() });
            }
            _ => {}
        }
        Entry::Signed(Rule {
            pattern: self.pattern.clone(),
            keys,
            require: self.require,
            annotations: self.annotations.clone(),
            docker_reference: self.docker_reference,
        })
    }
}

impl TrustKey {
    fn resolve(
        &self,
        read: &mut impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<PublicKey, (&'static str, TrustProblem)> {
        let (field, pem) = match (&self.pem, &self.path) {
            (Some(pem), None) => ("pem", pem.clone()),
            (None, Some(path)) => match read(path) {
                Ok(pem) => ("path", pem),
                Err(error) => return Err(("path", TrustProblem::Read { path: path.clone(), error })),
            },
            (None, None) => return Err(("pem", TrustProblem::NoSource)),
            (Some(_), Some(_)) => return Err(("pem", TrustProblem::TwoSources)),
        };
        PublicKey::from_pem(&pem).map_err(|error| (field, TrustProblem::Key { path: self.path.clone(), error }))
    }
}

/// Collects the faults of one rule.
struct Report<'a> {
    rule: usize,
    pattern: &'a str,
    faults: &'a mut Vec<TrustFault>,
}

impl Report<'_> {
    fn field(&mut self, field: &'static str, problem: TrustProblem) {
        self.push(None, field, problem);
    }

    fn key(&mut self, key: &str, field: &'static str, problem: TrustProblem) {
        self.push(Some(key.to_owned()), field, problem);
    }

    fn push(&mut self, key: Option<String>, field: &'static str, problem: TrustProblem) {
        self.faults.push(TrustFault { rule: self.rule, pattern: self.pattern.to_owned(), key, field, problem });
    }
}

#[expect(clippy::disallowed_methods, reason = "keys are files that the operator names by path")]
fn read_key_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_KEY_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
