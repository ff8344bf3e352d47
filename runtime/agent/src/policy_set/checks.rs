//! Problems of a policy set as a whole: each of its policies could run by itself.

use std::collections::BTreeSet;

use qosm_engine::Interface;
use qosm_model::problem::Problem;

use super::PolicySet;
use crate::loaded::LoadedPolicy;
use crate::policy_set::resolved::LoadFailed;

/// A shadow of a policy that does not run cannot be compared.
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

/// Two policies of one priority that may set the same: which one wins is then a matter of names.
pub(super) fn warn_of_ties(set: &mut PolicySet) {
    let active: Vec<_> = set.policies.iter().filter(|policy| policy.policy.config.mode.is_active()).collect();
    let mut problems = Vec::new();
    for (place, one) in active.iter().enumerate() {
        for other in active.iter().skip(place + 1) {
            let (one, other) =
                if one.policy.config.name < other.policy.config.name { (one, other) } else { (other, one) };
            if one.policy.config.priority != other.policy.config.priority {
                continue;
            }
            let imports = |policy: &LoadedPolicy| policy.module.imports().clone();
            let theirs = imports(&other.policy);
            let shared: Vec<_> = imports(&one.policy)
                .into_iter()
                .filter(|interface| {
                    interface.is_control() && *interface != Interface::PodEvent && theirs.contains(interface)
                })
                .map(|interface| interface.to_string())
                .collect();
            if !shared.is_empty() {
                problems.push(Problem {
                    object: format!("PolicyModule {}", other.policy.config.name),
                    field: Some("spec.priority".into()),
                    message: format!(
                        "{} is that of `{}` too, and both may set {}; where both do, `{}` wins by its name: give them \
                         different priorities",
                        one.policy.config.priority,
                        one.policy.config.name,
                        shared.join(", "),
                        one.policy.config.name
                    ),
                });
            }
        }
    }
    set.problems.extend(problems);
}
