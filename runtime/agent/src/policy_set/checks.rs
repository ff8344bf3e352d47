//! Checks of a policy set as a whole, after each of its policies was checked by itself.

use std::collections::BTreeSet;

use super::PolicySet;
use crate::policy_set::resolved::LoadFailed;

/// Moves shadows to `load_failed` if no active policy has the name in their `shadow_of`.
pub(super) fn check_shadows(set: &mut PolicySet) {
    let active: BTreeSet<String> = (set.policies.iter().map(|resolved| &resolved.policy.config))
        .filter(|config| config.mode.is_active())
        .map(|config| config.name.clone())
        .chain(set.load_failed.iter().filter(|policy| policy.mode.is_active()).map(|policy| policy.policy.clone()))
        .collect();
    let mut kept = Vec::new();
    for resolved in std::mem::take(&mut set.policies) {
        let config = &resolved.policy.config;
        let missing = config.shadow_of.as_ref().filter(|of| !config.mode.is_active() && !active.contains(*of));
        match missing {
            None => kept.push(resolved),
            Some(of) => {
                let known = active.iter().cloned().collect::<Vec<_>>().join(", ");
                let error = format!("shadowOf: no active policy `{of}` runs here; there are: {known}");
                let policy = config.name.clone();
                set.load_failed.push(LoadFailed { policy, mode: config.mode, error, is_pending: false });
            }
        }
    }
    set.policies = kept;
}
