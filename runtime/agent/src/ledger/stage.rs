//! Staging: settings of a policy become leases.

use qosm_model::lease::{Holder, Timestamp};
use qosm_model::setting::Setting;

use crate::ledger::{Ledger, Reach};

impl Ledger {
    /// Begins the staging of a policy. With `anew` the policy declares all that it wants, and [`Self::end_staging`] releases what it does
    /// not name.
    pub(crate) fn begin_staging(&mut self, holder: &Holder, anew: bool) {
        self.undeclared = if anew { self.leases.held_by(&holder.policy).collect() } else { Default::default() };
    }

    /// Stages a setting. Returns it if it is not about a knob.
    pub(crate) fn stage(
        &mut self,
        holder: &Holder,
        setting: Setting,
        reach: &Reach<'_>,
        now: Timestamp,
    ) -> Option<Setting> {
        match setting {
            Setting::Hold { target, knob, value, reason } => {
                self.undeclared.remove(&(target, knob));
                if self.leases.acquire(holder, target, knob, value, reason, now) {
                    self.dirty.insert((target, knob));
                }
                self.judge_lease(&holder.policy, target, knob, reach(target));
                self.note_shared((target, knob));
                None
            }
            Setting::Release { target, knob } => {
                if self.leases.release(&holder.policy, target, knob) {
                    self.dirty.insert((target, knob));
                }
                None
            }
            other => Some(other),
        }
    }

    /// Releases what a policy that declared anew did not name.
    pub(crate) fn end_staging(&mut self, holder: &Holder) {
        for (target, knob) in std::mem::take(&mut self.undeclared) {
            if self.leases.release(&holder.policy, target, knob) {
                self.dirty.insert((target, knob));
            }
        }
    }

    /// Releases all that a policy holds.
    pub(crate) fn release(&mut self, policy: &str) {
        self.dirty.extend(self.leases.release_policy(policy));
    }
}
