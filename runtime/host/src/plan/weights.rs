//! Weights and `cpu.idle`, which depend on each other.

use std::collections::HashSet;

use qosm_model::knob::{IDLE_WEIGHT, Knob, Level, Target, Value};

use super::{Changes, Clamp, Plan, Step};
use crate::Host;
use crate::error::HostError;
use crate::knob_table;
use crate::targets::CgroupFile;
use crate::weight;

impl Host {
    /// Refuses weights for idle cgroups, and plans the lowest weight if `cpu.idle` is wanted but unsupported.
    pub(super) fn settle_weights(&self, changes: &mut Changes, plan: &mut Plan) {
        let mut idle: HashSet<Target> = HashSet::new();
        let weights: Vec<Step> = changes.of(Knob::CpuWeight).copied().collect();
        for step in weights {
            let Step { target, knob, from, to } = step;
            let is_idle = match changes.get(target, Knob::CpuIdle) {
                Some(change) => change.to == Value::Number(1),
                None => from == IDLE_WEIGHT,
            };
            if is_idle {
                idle.insert(target);
            } else if to == IDLE_WEIGHT && lacks_idle(plan, target) {
                let given = weight::lowest(self.knob_version(knob_table::row(knob)));
                let why = "cpu.idle cannot be had here, and the lowest weight comes nearest to it".to_owned();
                plan.clamped.push(Clamp { target, knob, wanted: to, given, why });
                changes.put(Step { to: given, ..step });
            }
        }
        changes.keep(|change| self.weight_fits(change, &idle), plan);
        changes.keep_unless_baseline(|change| self.allow(change, Knob::CpuWeight), plan);
    }

    fn weight_fits(&self, change: &Step, idle: &HashSet<Target>) -> Result<(), HostError> {
        let Step { target, knob, to, .. } = *change;
        if knob != Knob::CpuWeight || idle.contains(&target) == (to == IDLE_WEIGHT) {
            return Ok(());
        }
        let path = self.file_path_or_name(target, CgroupFile::Knob(knob));
        if to == IDLE_WEIGHT {
            return Err(HostError::Range {
                target,
                knob,
                value: Box::new(to),
                path,
                allowed: knob_table::row(knob).allowed(),
            });
        }
        Err(HostError::Idle { target, path })
    }
}

/// Whether a wanted `cpu.idle` was refused.
fn lacks_idle(plan: &Plan, target: Target) -> bool {
    target.level() == Level::Container
        && plan.refused.iter().any(|(refused, knob, _)| (*refused, *knob) == (target, Knob::CpuIdle))
}
