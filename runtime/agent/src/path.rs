//! Paths of cgroups.

/// Whether one cgroup is another, or below it.
pub(crate) fn is_within(cgroup: &str, above: &str) -> bool {
    cgroup.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
