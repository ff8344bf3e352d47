//! What the policy found wrong with what others wrote, for the operator to read.

use std::fmt;

use crate::json::Fault;

/// Something that cannot be used. The rest goes on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The ConfigMap key, label, annotation or pod.
    pub object: String,
    /// The field, what is wrong with it, and the way out.
    pub fault: Fault,
}

impl Finding {
    /// A finding about an object.
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
