//! Faults of a trust policy: all at once, each with its rule, field and remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::key::KeyError;

/// A trust policy that cannot be used. One broken rule rejects the whole policy: the other rules were written with it in mind.
#[derive(Debug, thiserror::Error)]
#[error("the trust policy cannot be used: {}", Joined(faults))]
pub struct TrustError {
    /// All faults, in the order of the rules.
    pub faults: Vec<TrustFault>,
}

/// One fault of one rule.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule} (`{pattern}`), {}`{field}`: {problem}", OfKey(key))]
pub struct TrustFault {
    /// The rule's number, counted from 1.
    pub rule: usize,
    /// The rule's pattern as written.
    pub pattern: String,
    /// The name of the faulty key, or its number if it has no name; `None` if the fault is not in a key.
    pub key: Option<String>,
    /// The field.
    pub field: &'static str,
    /// The fault.
    pub problem: TrustProblem,
}

/// Kinds of faults.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustProblem {
    /// The pattern matches nothing.
    #[error("{0}")]
    Pattern(&'static str),
    /// Two patterns of the same length match the same artefacts.
    #[error(
        "it is as long as the pattern of rule {rule} (`{pattern}`), and some artefacts match both, so that neither counts more; \
         merge the two rules, or make one pattern longer"
    )]
    Tie {
        /// The earlier rule's number.
        rule: usize,
        /// Its pattern.
        pattern: String,
    },
    /// The rule has no keys and would accept nothing.
    #[error(
        "there is none, so that nothing would be let in; list keys, or write `unsigned: true` to let these artefacts in \
         without a signature"
    )]
    NoKeys,
    /// The rule contradicts itself.
    #[error("it means nothing beside `unsigned: true`, which lets in everything; leave out one of the two")]
    BesideUnsigned,
    /// The rule requires 0 signatures.
    #[error("0 signatures would let everything in; write at least 1, or `unsigned: true` instead of keys")]
    Nothing,
    /// The rule requires more signatures than it has different keys.
    #[error(
        "{wanted} signatures by different keys are wanted, and {distinct} are listed; add keys, or lower `atLeast`"
    )]
    TooMany {
        /// Number of required signatures.
        wanted: usize,
        /// Number of different keys.
        distinct: usize,
    },
    /// The key has no name, so reports could not name the signer.
    #[error("each key needs a name, for reports of signatures")]
    NoName,
    /// Two keys have the same name.
    #[error("another key has the same name; give each its own")]
    NameTwice,
    /// The entry has neither `pem` nor `path`.
    #[error("give the key either as `pem: |`, or as `path: FILE`")]
    NoSource,
    /// The entry has both `pem` and `path`.
    #[error("there is a `path` too; leave out one of the two")]
    TwoSources,
    /// The file cannot be read.
    #[error("{} cannot be read ({error}); mount it, or write the key itself as `pem: |`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The key is not usable.
    #[error("{}{error}", Of(path))]
    Key {
        /// The file of the key; `None` if the key is in the rule itself.
        path: Option<PathBuf>,
        /// The error of the key.
        error: KeyError,
    },
}

struct Joined<'a>(&'a [TrustFault]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

struct OfKey<'a>(&'a Option<String>);

impl fmt::Display for OfKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |key| write!(f, "key `{key}`, "))
    }
}

struct Of<'a>(&'a Option<PathBuf>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |path| write!(f, "{}: ", path.display()))
    }
}
