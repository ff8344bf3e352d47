//! Extended resources of the Kubernetes node that policies publish.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of a name's part before the slash, a DNS subdomain.
const MAX_PREFIX: usize = 253;
/// Maximum length of the part after the slash.
const MAX_NAME: usize = 63;

/// The full name of an extended resource, such as `kubernetes.io/batch-cpu`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The error for a text that is not the name of an extended resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no name of an extended resource; write DOMAIN/NAME as Kubernetes does, e.g. `kubernetes.io/batch-cpu`: a DNS name in lower \
     case, and at most 63 letters, digits, `-`, `_` and `.`"
)]
pub struct NotAResourceName;

impl FromStr for ResourceName {
    type Err = NotAResourceName;

    /// Accepts the names that the API server accepts for extended resources. A name without a domain is one of
    /// Kubernetes' own resources.
    fn from_str(text: &str) -> Result<Self, NotAResourceName> {
        let (prefix, name) = text.split_once('/').ok_or(NotAResourceName)?;
        let label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            label.len() <= 63 && is_between(label, |byte| fits(byte) && byte != b'-') && label.bytes().all(fits)
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = name.len() <= MAX_NAME && is_between(name, |byte| byte.is_ascii_alphanumeric());
        // The API server derives `requests.NAME` from the name for quotas.
        let is_ours = prefix.len() <= MAX_PREFIX && prefix.split('.').all(label) && !text.starts_with("requests.");
        if is_ours && is_name && name.bytes().all(fits) { Ok(Self(text.into())) } else { Err(NotAResourceName) }
    }
}

/// Whether a text is not empty, and its first and last byte fit.
fn is_between(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(|&byte| fits(byte)))
}

/// The amount of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Amount in the unit of the resource, at most `i64::MAX`, the largest quantity of Kubernetes.
    pub amount: u64,
    /// The shares of NUMA nodes.
    pub zones: BTreeMap<u32, u64>,
    /// The amount before allocations of other schedulers were subtracted; `None` if none were.
    pub origin: Option<u64>,
}

/// The state of a published resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceState {
    /// The resource.
    pub name: ResourceName,
    /// The amount on the Node object, as far as known.
    pub amount: u64,
    /// Whether the Node object has the amount that the policy publishes.
    pub in_force: bool,
    /// Why not; empty if it has.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_api_server_takes_for_an_extended_resource() {
        let long = "x".repeat(64);
        for (text, is_name) in [
            ("kubernetes.io/batch-cpu", true),
            ("alibabacloud.com/reclaimed-memory", true),
            ("koordinator.sh/Batch_cpu.1", true),
            ("cpu", false),
            ("/batch-cpu", false),
            ("kubernetes.io/", false),
            ("Kubernetes.io/batch-cpu", false),
            ("-a.io/batch-cpu", false),
            ("a..io/batch-cpu", false),
            ("kubernetes.io/batch/cpu", false),
            ("kubernetes.io/-batch", false),
            ("kubernetes.io/ä", false),
            ("requests.io/batch-cpu", false),
            (&*format!("kubernetes.io/{long}"), false),
        ] {
            assert_eq!(text.parse::<ResourceName>().is_ok(), is_name, "{text}");
        }
    }
}
