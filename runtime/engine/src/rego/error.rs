//! Errors of bundles and of settings documents.

use std::fmt;

use qosm_model::knob::Knob;
use qosm_model::resctrl::NotAShare;
use qosm_model::spelling;
use qosm_model::unit::Bytes;

use super::{DEPTH, ENTRYPOINT};
use crate::error::Rule;
use crate::interface::{Interface, Listed};

/// Why a gzip archive is not a policy that this host can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The archive is damaged or incomplete.
    #[error("it cannot be unpacked: {0}; was it built or fetched completely?")]
    Unreadable(String),
    /// One of its files, or all of them together, are too large.
    #[error("{what} has more than the {limit} that it may have")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// The limit.
        limit: Bytes,
    },
    /// The archive has more files than a policy needs.
    #[error("it holds more than {limit} files")]
    TooManyFiles {
        /// The limit.
        limit: usize,
    },
    /// The archive is not a bundle from `opa build -t wasm`.
    #[error("it holds no `{file}`; build it with `opa build -t wasm`")]
    Missing {
        /// The missing file.
        file: &'static str,
    },
    /// The archive holds a file twice.
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
    /// The bundle has no entrypoint `qosm/settings`.
    #[error(
        "it has no entrypoint `{ENTRYPOINT}`{}; write `entrypoint: true` into the METADATA of the rule `settings` of package \
         `qosm`, or build it with `opa build -t wasm -e {ENTRYPOINT}`",
        Instead(found)
    )]
    NoEntrypoint {
        /// The bundle's entrypoints.
        found: Vec<String>,
    },
    /// The entrypoint has no METADATA for qosm.
    #[error(
        "the METADATA of the entrypoint `{ENTRYPOINT}` have no `custom.qosm` with the policy's name, version and grants; those of a \
         package are not in a bundle"
    )]
    NoMetadata,
    /// The bundle's module imports functions that are not part of OPA's ABI.
    #[error("its module imports {}, which is not part of OPA's ABI; build it with `opa build -t wasm`", Listed(names))]
    ForeignImports {
        /// The imports' names.
        names: Vec<String>,
    },
    /// The bundle's module does not implement OPA's ABI.
    #[error("its module does not speak OPA's ABI: {0}; build it with `opa build -t wasm`")]
    NoAbi(String),
    /// The bundle's module implements another version of the ABI.
    #[error(
        "its module speaks version {major}.{minor} of OPA's ABI, and this host 1.2 and 1.3; build it with OPA 1.22"
    )]
    AbiVersion {
        /// The major version.
        major: i32,
        /// The minor version.
        minor: i32,
    },
    /// The bundle's module calls built-in functions that this host does not provide.
    #[error("it calls {}", Joined(.0))]
    Builtins(Vec<MissingBuiltin>),
}

/// A built-in function that a policy cannot call here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingBuiltin {
    /// Its name.
    pub name: String,
    /// Why the function is refused; `None` if this host does not know it.
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
    /// The object has no field that tells its kind.
    #[error("it has none of the fields {}, which say what it is for", Listed(kinds))]
    NoKind {
        /// The fields.
        kinds: &'static [&'static str],
    },
    /// The object has several fields that tell its kind.
    #[error("it has both `{one}` and `{other}`; make two objects of it")]
    TwoKinds {
        /// The first of them.
        one: &'static str,
        /// The second of them.
        other: &'static str,
    },
    /// The object names no target, or several.
    #[error("it names {}; a setting is for one `container`, `pod` or `tier`", if *several { "several targets" } else { "no target" })]
    Target {
        /// Whether there are several.
        several: bool,
    },
    /// The object names no container or pod for a class, or both.
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
    /// The object has none, or several, of fields of which exactly one is required.
    #[error("it has {found} of the fields {}; write one of them", Listed(fields))]
    NotOneOf {
        /// The number of these fields in the object.
        found: usize,
        /// The fields.
        fields: &'static [&'static str],
    },
    /// A share of caches or memory bandwidth that is invalid on any machine.
    #[error("{field}: {why}")]
    Share {
        /// The field.
        field: &'static str,
        /// What is wrong, and which values are valid.
        why: NotAShare,
    },
    /// An error inside one of the object's fields.
    #[error("{place}: {flaw}")]
    Within {
        /// The field, and its key if it has several.
        place: String,
        /// What is wrong there.
        flaw: Box<SettingFlaw>,
    },
    /// A required field is missing.
    #[error("`{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// An unknown field.
    #[error("{field} is not a field of it; there are {}", Listed(known))]
    UnknownField {
        /// The field, as errors show it.
        field: String,
        /// The known fields.
        known: &'static [&'static str],
    },
    /// A value of the wrong type, or an unknown word.
    #[error("{field}: it is {found}, and should be {expected}")]
    Value {
        /// The field.
        field: &'static str,
        /// The value that was found.
        found: String,
        /// The values that are valid.
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
        /// The smallest valid number.
        least: i64,
        /// The largest valid number.
        most: i64,
    },
    /// A knob that does not exist.
    #[error("knob: there is no knob `{name}`; {} {}", knobs_are(name), Listed(&Knob::ALL))]
    NoKnob {
        /// The name that was written.
        name: String,
    },
    /// A knob that only containers have, on a pod or tier.
    #[error("only a container has this knob")]
    ContainersOnly,
    /// A `device` with a knob that does not belong to a device.
    #[error("`{knob}` is of no device: leave `device` out")]
    NoDevice {
        /// The knob.
        knob: &'static str,
    },
    /// Limits of a device without any limit.
    #[error("it limits nothing; give one of {}, or leave the object out", Listed(fields))]
    Unlimited {
        /// The fields of the limits.
        fields: &'static [&'static str],
    },
    /// A knob of the node together with a target.
    #[error("it names a `{field}`, and the knob is the node's own: leave `{field}` out")]
    NodesOwn {
        /// The field that names the target.
        field: &'static str,
    },
    /// The policy does not declare the grant that the setting needs.
    #[error("it needs the grant `{0}`; add it to `custom.qosm.grants` in the policy's METADATA")]
    NotDeclared(Interface),
    /// Two values for one knob of one target.
    #[error("another object, settings[{other}], has another value for it: {one} there, {two} here")]
    Contradiction {
        /// Index of the other object.
        other: usize,
        /// The other object's value.
        one: String,
        /// This object's value.
        two: String,
    },
    /// A second object of a kind that may occur only once.
    #[error("there is a second one: settings[{other}]")]
    Second {
        /// Index of the other object.
        other: usize,
    },
    /// The state to be saved is too large.
    #[error("state: {0}")]
    State(String),
    /// A violation of a rule that also applies to components.
    #[error("{0}")]
    Rule(Box<Rule>),
}

/// What precedes the list of knobs: the one that was probably meant.
fn knobs_are(name: &str) -> String {
    match spelling::nearest(name, Knob::ALL.map(Knob::kind_name)) {
        Some(meant) => format!("did you mean `{meant}`? There are"),
        None => "there are".to_owned(),
    }
}

impl SettingFlaw {
    /// The error for a field that is nested deeper than [`DEPTH`].
    pub(crate) fn too_deep(field: &'static str) -> Self {
        Self::Value {
            field,
            found: format!("nested deeper than {DEPTH} levels"),
            expected: "flatter than that".to_owned(),
        }
    }
}
