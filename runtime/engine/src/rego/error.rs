//! What is wrong with a bundle, and with a settings document.

use std::fmt;

use qosm_model::resctrl::NotAShare;
use qosm_model::unit::Bytes;

use super::{DEPTH, ENTRYPOINT};
use crate::error::Rule;
use crate::interface::{Interface, Listed};

/// Why a gzip archive is no policy that runs here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Not a complete archive.
    #[error("it cannot be unpacked: {0}; was it built or fetched completely?")]
    Unreadable(String),
    /// One of its files, or all of them together, are too large.
    #[error("{what} has more than the {limit} that it may have")]
    TooLarge {
        /// What.
        what: &'static str,
        /// What is allowed.
        limit: Bytes,
    },
    /// More files than a policy needs.
    #[error("it holds more than {limit} files")]
    TooManyFiles {
        /// What is allowed.
        limit: usize,
    },
    /// No bundle of `opa build -t wasm`.
    #[error("it holds no `{file}`; build it with `opa build -t wasm`")]
    Missing {
        /// What it should hold.
        file: &'static str,
    },
    /// It is not clear which counts.
    #[error("it holds `{file}` twice")]
    Twice {
        /// The file.
        file: &'static str,
    },
    /// One of its documents cannot be used.
    #[error("its `{file}` cannot be used: {why}")]
    Document {
        /// The file.
        file: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It was built for another target.
    #[error(
        "it has no entrypoint `{ENTRYPOINT}`{}; write `entrypoint: true` into the METADATA of the rule `settings` of package \
         `qosm`, or build it with `opa build -t wasm -e {ENTRYPOINT}`",
        Instead(found)
    )]
    NoEntrypoint {
        /// The entrypoints that it has.
        found: Vec<String>,
    },
    /// It has no METADATA.
    #[error(
        "the METADATA of the entrypoint `{ENTRYPOINT}` have no `custom.qosm` with the policy's name, version and grants; those of a \
         package are not in a bundle"
    )]
    NoMetadata,
    /// Its module imports functions that are not OPA's.
    #[error("its module imports {}, which is not part of OPA's ABI; build it with `opa build -t wasm`", Listed(names))]
    ForeignImports {
        /// The imports' names.
        names: Vec<String>,
    },
    /// Its module is not one of OPA's.
    #[error("its module does not speak OPA's ABI: {0}; build it with `opa build -t wasm`")]
    NoAbi(String),
    /// Its module speaks another version of the ABI.
    #[error(
        "its module speaks version {major}.{minor} of OPA's ABI, and this host 1.2 and 1.3; build it with OPA 1.22"
    )]
    AbiVersion {
        /// Changes that break.
        major: i32,
        /// Additions.
        minor: i32,
    },
    /// Its module needs functions that this host does not have.
    #[error("it calls {}", Joined(.0))]
    Builtins(Vec<MissingBuiltin>),
}

/// A built-in function that a policy cannot call here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingBuiltin {
    /// Its name.
    pub name: String,
    /// Why it is refused; `None` where it is not known.
    pub why: Option<String>,
    /// What to write instead.
    pub instead: String,
}

impl fmt::Display for MissingBuiltin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, why, instead } = self;
        match why {
            Some(why) => write!(f, "`{name}`, which is refused, for {why}: {instead}"),
            None => write!(f, "`{name}`, which is not known here: {instead}"),
        }
    }
}

struct Joined<'a>(&'a [MissingBuiltin]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, missing) in self.0.iter().enumerate() {
            write!(f, "{}{missing}", if index == 0 { "" } else { "; and " })?;
        }
        Ok(())
    }
}

struct Instead<'a>(&'a [String]);

impl fmt::Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " but {}", Listed(self.0)) }
    }
}

/// What is wrong with one object of a settings document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingFlaw {
    /// Not an object.
    #[error("it is no object but of type {found}")]
    NotAnObject {
        /// Its type.
        found: &'static str,
    },
    /// No field names its target or kind.
    #[error("it has none of the fields {}, which say what it is for", Listed(kinds))]
    NoKind {
        /// The fields.
        kinds: &'static [&'static str],
    },
    /// Several fields name its target or kind.
    #[error("it has both `{one}` and `{other}`; make two objects of it")]
    TwoKinds {
        /// One of them.
        one: &'static str,
        /// Another.
        other: &'static str,
    },
    /// No target is named, or several are.
    #[error("it names {}; a setting is for one `container`, `pod` or `tier`", if *several { "several targets" } else { "no target" })]
    Target {
        /// Whether there are several.
        several: bool,
    },
    /// No target that can be in a class is named, or two are.
    #[error("it names {}; a class is given to one `container` or `pod`", if *several { "several targets" } else { "no target" })]
    Member {
        /// Whether there are several.
        several: bool,
    },
    /// A class that the settings do not define.
    #[error("assign: no object defines class `{class}`; add one with `\"class\": \"{class}\"`")]
    NoClass {
        /// The name.
        class: String,
    },
    /// None, or several, of the fields of which there is to be one.
    #[error("it has {found} of the fields {}; write one of them", Listed(fields))]
    NotOneOf {
        /// How many there are.
        found: usize,
        /// The fields.
        fields: &'static [&'static str],
    },
    /// A share that no machine has.
    #[error("{field}: {why}")]
    Share {
        /// The field.
        field: &'static str,
        /// What is wrong, and what to give.
        why: NotAShare,
    },
    /// An error inside of one of its fields.
    #[error("{place}: {flaw}")]
    Within {
        /// The field, and its key where it has several.
        place: String,
        /// What is wrong there.
        flaw: Box<SettingFlaw>,
    },
    /// A field that must be there is not.
    #[error("`{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field that is not known.
    #[error("{field} is not a field of it; there are {}", Listed(known))]
    UnknownField {
        /// The field, as errors show it.
        field: String,
        /// Those that there are.
        known: &'static [&'static str],
    },
    /// A value of the wrong type, or an unknown word.
    #[error("{field}: it is {found}, and should be {expected}")]
    Value {
        /// The field.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What could.
        expected: String,
    },
    /// A number with a fraction.
    #[error("{field}: {number} is not a whole number; round it with `floor`, `ceil` or `round`")]
    Fraction {
        /// The field.
        field: &'static str,
        /// The number.
        number: String,
    },
    /// A number that is too small or too large.
    #[error("{field}: {number} is not within {least} and {most}")]
    Range {
        /// The field.
        field: &'static str,
        /// The number.
        number: String,
        /// The smallest that can be.
        least: i64,
        /// The largest that can be.
        most: i64,
    },
    /// A knob that does not exist.
    #[error("knob: there is no knob `{name}`; there are {}", Listed(&qosm_model::knob::Knob::ALL))]
    NoKnob {
        /// What was written.
        name: String,
    },
    /// A knob of containers on another level.
    #[error("only a container has this knob")]
    ContainersOnly,
    /// A knob with a device that has nothing to do with devices.
    #[error("`{knob}` is of no device: leave `device` out")]
    NoDevice {
        /// The knob.
        knob: &'static str,
    },
    /// Limits of a device that limit nothing.
    #[error("it limits nothing; give one of {}, or leave the object out", Listed(fields))]
    Unlimited {
        /// Those that there are.
        fields: &'static [&'static str],
    },
    /// A knob of the node's own on something else.
    #[error("it names a `{field}`, and the knob is the node's own: leave `{field}` out")]
    NodesOwn {
        /// What it names.
        field: &'static str,
    },
    /// The grant that it takes is not declared.
    #[error("it needs the grant `{0}`; add it to `custom.qosm.grants` in the policy's METADATA")]
    NotDeclared(Interface),
    /// Two values for one knob of one target.
    #[error("another object, settings[{other}], has another value for it: {one} there, {two} here")]
    Contradiction {
        /// The other's place.
        other: usize,
        /// Its value.
        one: String,
        /// This one's.
        two: String,
    },
    /// A second object of a kind of which there can be one.
    #[error("there is a second one: settings[{other}]")]
    Second {
        /// The other's place.
        other: usize,
    },
    /// What is to be remembered is too large or too deep.
    #[error("state: {0}")]
    State(String),
    /// A rule that components have to keep too.
    #[error("{0}")]
    Rule(Box<Rule>),
}

impl SettingFlaw {
    /// Nested deeper than anything that is meant.
    pub(crate) fn too_deep(field: &'static str) -> Self {
        Self::Value {
            field,
            found: format!("nested deeper than {DEPTH} levels"),
            expected: "flatter than that".to_owned(),
        }
    }
}
