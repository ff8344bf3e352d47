//! Errors in objects and annotations, reported to the operator.

use std::fmt;

use crate::json::Fault;

/// An input that cannot be used; everything else still applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The ConfigMap key, label, annotation or pod.
    pub object: String,
    /// The field, what is wrong with it, and how to fix it.
    pub fault: Fault,
}

impl Finding {
    /// Creates a finding about an object.
    pub(crate) fn new(object: &str, fault: Fault) -> Self {
        Self { object: object.to_owned(), fault }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.fault.field.is_empty() { "" } else { "field " };
        write!(f, "{} {separator}{}", self.object, self.fault)
    }
}
