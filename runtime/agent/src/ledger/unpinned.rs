//! A CFS quota that a policy lifts where it sets CPUs waits for the CPUs: a pod whose set of CPUs is refused would have no limit at all.

use std::collections::{BTreeSet, HashMap};

use qosm_host::knob_table::CPU_LIST;
use qosm_host::{Bandwidth, Step};
use qosm_model::knob::{Target, Value};

use crate::inputs::Inputs;
use crate::ledger::refusal::Refusal;
use crate::ledger::resolved::Resolved;
use crate::ledger::{Key, Ledger};
use crate::table::PodTable;

impl Ledger {
    /// Why a quota must not be lifted: the same policy's CPUs of the target, or of a container in it, are refused. `None` if nothing
    /// speaks against the value.
    pub(super) fn lacks_cpus(
        &self,
        pods: &PodTable,
        policy: &str,
        (target, knob): Key,
        value: Value,
    ) -> Option<String> {
        if knob != Bandwidth::KNOB || value != Value::Max {
            return None;
        }
        let own = self.refused_cpus(target, policy);
        let refused = own.or_else(|| match target {
            Target::Pod(id) => pods.get(id)?.targets().find_map(|inner| self.refused_cpus(inner, policy)),
            Target::Node | Target::Tier(_) | Target::Container(_) => None,
        })?;
        Some(format!("only {} would limit it then, which it does not get: {}", refused.wanted, refused.why))
    }

    fn refused_cpus(&self, target: Target, policy: &str) -> Option<&Refusal> {
        self.refusals.get(&(target, CPU_LIST)).filter(|refusal| *refusal.policy == *policy)
    }

    /// The targets among those of `keys` whose CPUs are refused.
    pub(super) fn without_cpus(&self, keys: &BTreeSet<Key>) -> BTreeSet<Target> {
        let refused = keys.iter().filter(|key| key.1 == CPU_LIST && self.refusals.contains_key(key));
        refused.map(|key| key.0).collect()
    }

    /// Takes the steps out of a plan that lift quotas of targets whose CPUs were refused by the same plan.
    pub(super) fn keep_quotas(
        &mut self,
        inputs: &Inputs<'_>,
        steps: &mut Vec<Step>,
        resolutions: &HashMap<Key, Resolved>,
    ) {
        steps.retain(|step| {
            let key = (step.target, step.knob);
            let Some(resolved) = resolutions.get(&key).filter(|resolved| !resolved.restores) else { return true };
            let Some(why) = self.lacks_cpus(inputs.pods, &resolved.policy, key, step.to) else { return true };
            if self.refused_by_rails(inputs, step.target, step.knob, step.to, why).is_some() {
                // It is held from before: the next step restores it.
                self.dirty.insert(key);
            }
            false
        });
    }

    /// Marks the quotas of targets, and of the pods that they belong to, to be resolved in the next step.
    pub(super) fn touch_quotas<'a>(&mut self, inputs: &Inputs<'_>, targets: impl Iterator<Item = &'a Target>) {
        for &target in targets {
            let pod = inputs.pods.of(target).map(|entry| Target::Pod(entry.id));
            let keys = [Some(target), pod].into_iter().flatten().map(|of| (of, Bandwidth::KNOB));
            self.dirty.extend(keys.filter(|key| self.leases.effective(key.0, key.1).is_some()));
        }
    }
}
