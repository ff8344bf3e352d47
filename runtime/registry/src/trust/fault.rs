//! What is wrong with a trust policy: all of it at once, each with its rule, field and way out.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::key::KeyError;

/// A trust policy that cannot be used. One broken rule rejects all of it: the others were written with it in mind.
#[derive(Debug, thiserror::Error)]
#[error("the trust policy cannot be used: {}", Joined(faults))]
pub struct TrustError {
    /// All that is wrong, in the order of the rules.
    pub faults: Vec<TrustFault>,
}

/// One thing that is wrong with one rule.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule} (`{pattern}`), {}`{field}`: {problem}", OfKey(key))]
pub struct TrustFault {
    /// The rule's number, counted from 1.
    pub rule: usize,
    /// The rule's pattern as it was written.
    pub pattern: String,
    /// The key's name, if one of the rule's keys is meant; its number where it has no name.
    pub key: Option<String>,
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: TrustProblem,
}

/// What can be wrong with a field of a rule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustProblem {
    /// The pattern matches nothing.
    #[error("{0}")]
    Pattern(&'static str),
    /// Two rules claim the same artefacts, and none does so more closely.
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
    /// It would accept nothing.
    #[error(
        "there is none, so that nothing would be let in; list keys, or write `unsigned: true` to let these artefacts in \
         without a signature"
    )]
    NoKeys,
    /// The rule contradicts itself.
    #[error("it means nothing beside `unsigned: true`, which lets in everything; leave out one of the two")]
    BesideUnsigned,
    /// Zero signatures.
    #[error("0 signatures would let everything in; write at least 1, or `unsigned: true` instead of keys")]
    Nothing,
    /// More than there can be.
    #[error(
        "{wanted} signatures by different keys are wanted, and the rule lists {distinct}; add keys, or lower `atLeast`"
    )]
    TooMany {
        /// How many are wanted.
        wanted: usize,
        /// How many different keys there are, however often each is listed.
        distinct: usize,
    },
    /// Without it reports could not name the signer.
    #[error("each key needs a name; it stands in every report of who signed")]
    NoName,
    /// Two keys would look the same in reports.
    #[error("another key of this rule has the same name; give each its own")]
    NameTwice,
    /// The name has no key.
    #[error("give the key either as `pem: |`, or as `path: FILE`")]
    NoSource,
    /// There are two.
    #[error("there is a `path` too; leave out one of the two")]
    TwoSources,
    /// The file cannot be read.
    #[error("{} cannot be read ({error}); mount it, or write the key into the rule as `pem: |`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// It is no usable key.
    #[error("{}{error}", Of(path))]
    Key {
        /// The file that it was read from; `None` if it is in the rule itself.
        path: Option<PathBuf>,
        /// What it is instead.
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
