//! One built-in function, and which names there are.

use std::borrow::Cow;

use crate::budget::Spent;
use crate::table::{self, IN_MODULE, Provider};
use crate::{Context, Value, limit};

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

/// A call that cannot give a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuiltinError {
    /// OPA makes the expression undefined and goes on, unless asked to be strict.
    #[error("{builtin}: {reason}")]
    Failed {
        /// The function.
        builtin: &'static str,
        /// Why, in words.
        reason: String,
    },
    /// The evaluation has used up its [`Budget`](crate::Budget), and has to end: to go on as if the function had failed would give
    /// other settings than the policy says.
    #[error("{builtin}: the built-in functions of one evaluation have used up the {what} that it may use")]
    Spent {
        /// The function that would have gone beyond it.
        builtin: &'static str,
        /// Of what.
        what: Spent,
    },
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
    match entry.provider {
        Provider::Host { arity, function, .. } => Some(Builtin { name: entry.name, arity, function }),
        Provider::Compiler | Provider::Refused { .. } => None,
    }
}

/// What becomes of a policy that calls the function of that name.
pub fn support(name: &str) -> Support {
    match table::entry(name).map(|entry| &entry.provider) {
        Some(Provider::Host { .. } | Provider::Compiler) => Support::Works,
        Some(&Provider::Refused { why, instead }) => Support::Refused { why, instead },
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
    /// Where OPA's fails, where the arguments are not of its types, where it would give more than [`crate::limit`] allows, and where
    /// the evaluation's budget is spent.
    pub fn call(&self, arguments: &[Value], context: &Context) -> Result<Option<Value>, BuiltinError> {
        let outcome = self.within_budget(arguments, context);
        // Whatever the function made of it.
        if let Some(what) = context.spent() {
            return Err(BuiltinError::Spent { builtin: self.name, what });
        }
        outcome
            .map_err(|Fault(reason)| BuiltinError::Failed { builtin: self.name, reason: excerpt(&reason).to_owned() })
    }

    /// Each function reads its arguments, may copy them, and returns a value; that much is charged here. A function
    /// that takes more charges for it itself.
    fn within_budget(&self, arguments: &[Value], context: &Context) -> Outcome {
        let weight = arguments.iter().map(Value::weight).fold(0, usize::saturating_add);
        context.charge(weight)?;
        context.work(weight.saturating_mul(4).saturating_add(CALL))?;
        if arguments.len() != self.arity {
            return Err(format!("takes {} arguments, was given {}", self.arity, arguments.len()).into());
        }
        let value = (self.function)(arguments, context)?;
        if let Some(value) = &value {
            let weight = value.weight();
            context.charge(weight)?;
            context.work(weight.saturating_mul(2))?;
        }
        Ok(value)
    }
}

/// Work of a call that does nothing.
const CALL: usize = 200;

/// The beginning of a text, for a message that quotes it.
pub(crate) fn excerpt(text: &str) -> &str {
    text.get(..text.floor_char_boundary(limit::MESSAGE_BYTES)).unwrap_or(text)
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
