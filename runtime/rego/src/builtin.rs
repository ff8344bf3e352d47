//! One built-in function, and which names there are.

use std::borrow::Cow;

use crate::table::{self, IN_MODULE, Verdict};
use crate::{Context, Value};

/// What a call gives: a value, nothing (the expression is undefined), or why it cannot.
pub(crate) type Outcome = Result<Option<Value>, Fault>;

/// Why a call cannot give a value, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self(reason.into())
    }
}

/// A built-in function that the host answers.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) arity: usize,
    pub(crate) function: fn(&[Value], &Context) -> Outcome,
}

/// A call that cannot give a value. OPA makes the expression undefined and goes on, unless asked to be strict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{builtin}: {reason}")]
pub struct BuiltinError {
    /// The function.
    pub builtin: &'static str,
    /// Why, in words.
    pub reason: String,
}

/// What becomes of a policy's call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It gives what OPA gives: compiled into the module, or answered by [`builtin`].
    Works,
    /// It is known, and a policy that calls it is not loaded.
    Refused {
        /// Why, as half a sentence: "it …".
        why: &'static str,
        /// What to write in its place.
        instead: &'static str,
    },
    /// OPA 1.22 has no such function.
    Unknown {
        /// What may have been meant, or what to do.
        instead: String,
    },
}

/// The function of that name, if the host answers it.
pub fn builtin(name: &str) -> Option<Builtin> {
    let entry = table::entry(name)?;
    match entry.verdict {
        Verdict::Host { arity, function, .. } => Some(Builtin { name: entry.name, arity, function }),
        Verdict::Compiler | Verdict::Refused { .. } => None,
    }
}

/// What becomes of a policy that calls the function of that name.
pub fn support(name: &str) -> Support {
    match table::entry(name).map(|entry| &entry.verdict) {
        Some(Verdict::Host { .. } | Verdict::Compiler) => Support::Works,
        Some(&Verdict::Refused { why, instead }) => Support::Refused { why, instead },
        None if IN_MODULE.contains(&name) => Support::Works,
        None => Support::Unknown { instead: nearest(name) },
    }
}

impl Builtin {
    /// Its name in Rego.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many arguments it takes.
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// Calls it. `None` where OPA's is undefined.
    ///
    /// # Errors
    ///
    /// Where OPA's fails, where the arguments are not of its types, and where it would take or give more than [`crate::limit`]
    /// allows.
    pub fn call(&self, arguments: &[Value], context: &Context) -> Result<Option<Value>, BuiltinError> {
        let outcome = if arguments.len() == self.arity {
            (self.function)(arguments, context)
        } else {
            Err(format!("takes {} arguments, was given {}", self.arity, arguments.len()).into())
        };
        outcome.map_err(|Fault(reason)| BuiltinError { builtin: self.name, reason: reason.into_owned() })
    }
}

fn nearest(name: &str) -> String {
    let near = table::entries()
        .map(|entry| entry.name)
        .chain(IN_MODULE)
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness > 0.85)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match near {
        Some((_, near)) => format!("did you mean `{near}`?"),
        None => "build the policy with OPA 1.22's functions: `opa capabilities --current` lists them".to_owned(),
    }
}
