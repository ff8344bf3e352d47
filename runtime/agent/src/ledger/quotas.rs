//! The column of quotas: those in force, and the baselines beneath those that are held.

use std::sync::Arc;

use qosm_host::knob_table::row;
use qosm_host::{Bandwidth, Host};
use qosm_model::column::BandwidthSample;
use qosm_model::knob::Target;
use qosm_model::pod::Tier;
use qosm_model::unit::Micros;

use crate::inputs::Inputs;
use crate::ledger::Ledger;
use crate::ledger::drift::turns_of_looks;

impl Ledger {
    /// The column of quotas. Reads the held ones, a share of the others, and those with a reported write; the rest is as last read.
    pub(crate) fn read_quotas(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        groups: &[Target],
    ) -> Arc<[BandwidthSample]> {
        let turns = turns_of_looks(host, inputs);
        let turn = usize::try_from(inputs.ticks % turns).unwrap_or(0);
        let turns = usize::try_from(turns).unwrap_or(usize::MAX);
        let mut due: Vec<Target> = groups.iter().skip(turn).step_by(turns).copied().collect();
        due.extend(self.held.quotas().iter().filter(|&&target| self.quotas.get(target).is_some()));
        let is_in = |target: &&Target| !matches!(target, Target::Tier(Tier::Guaranteed | Tier::Burstable));
        due.extend(std::mem::take(&mut self.rewritten).iter().filter(is_in));
        // The quota of a pod is read when its cgroup is opened, that of a tier here.
        due.extend(
            groups.iter().filter(|target| matches!(target, Target::Tier(_)) && self.quotas.get(**target).is_none()),
        );
        self.quotas.add_young(&mut due);
        due.sort_unstable();
        due.dedup();
        for target in due {
            let before = self.quotas.get(target).map(|known| known.quota);
            let Some(now) = self.quotas.refresh(host, target) else { continue };
            // A burst is capped at the quota that it was planned with, and the kubelet has resized the container since.
            if let Some(partner) = row(Bandwidth::KNOB).partner
                && before.is_some_and(|before| before != now.quota)
                && self.held.contains_key(&(target, partner))
            {
                self.dirty.insert((target, partner));
            }
        }
        let has_held = !self.held.quotas().is_empty();
        if !has_held && let Some(kept) = self.quotas.kept(groups) {
            return kept;
        }
        let row = |&target: &Target| {
            let now = self.quotas.get(target)?;
            let held = if has_held { self.held.get(&(target, Bandwidth::KNOB)) } else { None };
            let baseline_quota = match held.map(|held| held.baseline) {
                None => now.quota,
                Some(held) => held.number().and_then(|number| u64::try_from(number).ok()).map(Micros),
            };
            Some(BandwidthSample { target, quota: now.quota, baseline_quota, period: now.period })
        };
        let column: Arc<[BandwidthSample]> = groups.iter().filter_map(row).collect();
        if !has_held {
            self.quotas.keep(groups, &column);
        }
        column
    }
}
