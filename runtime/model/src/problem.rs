//! Problems: configuration that cannot be used. A problem is never fatal, and is reported where the configuration's
//! author sees it.

use std::fmt;

/// An object's field that cannot be used, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The object by the name that its owner uses: `pod default/web`, `ConfigMap kube-system/ack-slo-config`, `pods.d/web.yaml`.
    pub object: String,
    /// The field within it, e.g. `annotation koordinator.sh/cpuBurst: cpuBurstPercent`; `None` when the whole object is meant.
    pub field: Option<String>,
    /// What is wrong, what happens instead, and what to write.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}: {field}: {}", self.object, self.message),
            None => write!(f, "{}: {}", self.object, self.message),
        }
    }
}

/// An error with all its sources, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
