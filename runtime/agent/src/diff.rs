//! Account, the part of shadows: what a version that only watches would do otherwise.

use qosm_model::knob::{Knob, Target};
use qosm_model::lease::Lease;

use crate::account::micros;
use crate::agent::Agent;
use crate::policy::Policy;
use crate::report::{
    AskedReport, CostReport, DiffCounts, DiffReport, DiffTotals, DifferenceReport, VersionReport, moment,
};
use crate::shadow::{Counts, Kind, Totals};

impl Agent {
    /// How a shadow would do otherwise. It is named itself, or by the active policy that it alone is compared with.
    ///
    /// # Errors
    ///
    /// Why there is nothing to tell, with the names of the shadows that there are.
    pub fn diff(&mut self, policy: &str) -> Result<DiffReport, String> {
        let place = self.shadow_named(policy)?;
        let Some(policy) = self.policies.get(place) else { return Err("no such policy".to_owned()) };
        let Some(shadow) = &policy.shadow else { return Err("not a shadow".to_owned()) };
        let report = DiffReport {
            shadow: version(policy),
            active: shadow.of.as_deref().map(|of| self.version_of(of)),
            health: policy.health.as_str().to_owned(),
            error: policy.health.error().map(str::to_owned),
            agreements: shadow.now.iter().flat_map(|now| now.counts.values()).map(|counts| counts.agreed).sum(),
            differences: Vec::new(),
            totals: totals(&shadow.totals),
            cost: CostReport {
                evaluations: policy.evaluations,
                failures: policy.failures,
                last_evaluation_usec: micros(policy.last_evaluation_seconds),
                all_evaluations_usec: micros(policy.all_evaluations_seconds),
            },
        };
        let differing = shadow.now.as_ref().map(|now| now.differing.clone()).unwrap_or_default();
        let rows = differing.into_iter().map(|(target, knob, kind)| self.difference(place, target, knob, kind));
        Ok(DiffReport { differences: rows.collect(), ..report })
    }

    fn shadow_named(&self, name: &str) -> Result<usize, String> {
        let shadows = || self.policies.iter().enumerate().filter(|(_, policy)| policy.shadow.is_some());
        if let Some((place, _)) = shadows().find(|(_, policy)| **policy.name() == *name) {
            return Ok(place);
        }
        let of_that_name = |policy: &Policy| policy.shadow.as_ref().is_some_and(|s| s.of.as_deref() == Some(name));
        let beside: Vec<_> = shadows().filter(|(_, policy)| of_that_name(policy)).collect();
        if let [(place, _)] = beside[..] {
            return Ok(place);
        }
        if let Some(unloaded) = self.unloaded.iter().find(|policy| !policy.mode.is_active() && policy.policy == name) {
            return Err(format!("shadow `{name}` is not loaded: {}", unloaded.error));
        }
        let names: Vec<_> = shadows().map(|(_, policy)| policy.name().to_string()).collect();
        let known = match (beside.is_empty(), names.is_empty()) {
            (false, _) => format!("policy `{name}` has more than one shadow; name one of them: {}", names.join(", ")),
            (true, false) => format!("no shadow `{name}` runs here; there are: {}", names.join(", ")),
            (true, true) => {
                format!("no shadow `{name}` runs here, and no other; start one with `mode: shadow` in the agent's file")
            }
        };
        Err(known)
    }

    pub(crate) fn version_of(&self, name: &str) -> VersionReport {
        let unknown = || VersionReport { policy: name.to_owned(), module: String::new(), digest: String::new() };
        self.policies.iter().find(|policy| **policy.name() == *name).map_or_else(unknown, version)
    }

    fn difference(&mut self, place: usize, target: Target, knob: Knob, kind: Kind) -> DifferenceReport {
        let in_force = match self.held.get(&(target, knob)) {
            Some(held) => Some(held.written),
            None => self.host.read(target, knob).ok(),
        };
        let subject = self.subject(target);
        let shadow = self.policies.get(place).and_then(|policy| policy.shadow.as_ref());
        let of = shadow.and_then(|shadow| shadow.of.as_deref());
        let active =
            self.leases.stack(target, knob).iter().find(|lease| of.is_none_or(|of| *lease.holder.policy == *of));
        DifferenceReport {
            level: subject.level.as_str().to_owned(),
            subject: subject.shown(),
            pod: subject.key(),
            container: subject.container.clone().unwrap_or_default(),
            knob: knob.to_string(),
            kind: kind.as_str().to_owned(),
            active: active.map(asked),
            shadow: shadow.and_then(|shadow| shadow.leases.effective(target, knob)).map(asked),
            in_force: in_force.map(Into::into),
        }
    }
}

fn version(policy: &Policy) -> VersionReport {
    VersionReport {
        policy: policy.name().to_string(),
        module: format!("{}@{}", policy.description.name, policy.description.version),
        digest: policy.module.digest().to_string(),
    }
}

fn asked(lease: &Lease) -> AskedReport {
    AskedReport {
        value: lease.value.into(),
        policy: lease.holder.policy.to_string(),
        reason: lease.reason.to_string(),
        since: moment(lease.since),
    }
}

fn totals(totals: &Totals) -> DiffTotals {
    let counts = |counts: &Counts| DiffCounts {
        agreed: counts.agreed,
        differed: counts.differed,
        only_active: counts.only_first,
        only_shadow: counts.only_second,
    };
    DiffTotals {
        since: totals.since.map(moment),
        ticks: totals.ticks,
        differing_ticks: totals.differing_ticks,
        knobs: totals.counts.iter().map(|(knob, of_knob)| (knob.to_string(), counts(of_knob))).collect(),
        events_withheld: totals.events_withheld,
        migrations_withheld: totals.migrations_withheld,
        classes_withheld: totals.classes_withheld,
    }
}
