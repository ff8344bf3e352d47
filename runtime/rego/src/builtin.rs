//! A built-in function, and the lookup of functions by name.

use std::borrow::Cow;

use crate::budget::Spent;
use crate::table::{self, IN_MODULE, Provider};
use crate::{Context, Value, limit};

/// Result of a call: a value, `None` (the expression is undefined), or a fault.
pub(crate) type Outcome = Result<Option<Value>, Fault>;

/// The message of a failed call.
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

/// A built-in function that the host provides.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) arity: usize,
    pub(crate) function: fn(&[Value], &Context) -> Outcome,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuiltinError {
    /// The function fails. OPA makes the expression undefined and continues, unless in strict mode.
    #[error("{builtin}: {reason}")]
    Failed {
        /// The function.
        builtin: &'static str,
        /// The reason.
        reason: String,
    },
    /// The evaluation has used up its [`Budget`](crate::Budget) and must end: if it continued as after a failed function,
    /// it would give other settings than the policy specifies.
    #[error("{builtin}: the built-in functions of one evaluation have used up the {what} that it may use")]
    Spent {
        /// The function that would exceed the budget.
        builtin: &'static str,
        /// The exhausted resource.
        what: Spent,
    },
}

/// How a policy's call of a function is supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// The function works as in OPA: it is compiled into the module, or [`builtin`] provides it.
    Works,
    /// The function is known, but a policy that calls it is not loaded.
    Refused {
        /// The reason, as half a sentence: "it …".
        why: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// OPA 1.22 has no such function.
    Unknown {
        /// The function that was probably meant, or what to do.
        instead: String,
    },
}

/// The function of that name; `None` if the host does not provide it.
pub fn builtin(name: &str) -> Option<Builtin> {
    let entry = table::entry(name)?;
    match entry.provider {
        Provider::Host { arity, function, .. } => Some(Builtin { name: entry.name, arity, function }),
        Provider::Compiler | Provider::Refused { .. } => None,
    }
}

/// How the function of that name is supported.
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

    /// The number of its arguments.
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// Calls the function. Returns `None` where OPA's function is undefined.
    ///
    /// # Errors
    ///
    /// If OPA's function fails, if the arguments have other types than it takes, if the result would exceed
    /// [`crate::limit`], or if the evaluation's budget is spent.
    pub fn call(&self, arguments: &[Value], context: &Context) -> Result<Option<Value>, BuiltinError> {
        let outcome = self.within_budget(arguments, context);
        // A spent budget takes precedence over the function's outcome.
        if let Some(what) = context.spent() {
            return Err(BuiltinError::Spent { builtin: self.name, what });
        }
        outcome
            .map_err(|Fault(reason)| BuiltinError::Failed { builtin: self.name, reason: excerpt(&reason).to_owned() })
    }

    /// Charges for reading the arguments, one copy of them, and the result. A function that uses more charges for that itself.
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

/// Work of an empty call.
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
