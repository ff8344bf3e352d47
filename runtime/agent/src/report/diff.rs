//! How the decisions of a shadow differ from those in force.

use qosm_model::knob::{Knob, Target};
use qosm_model::lease::Lease;

use crate::ledger::Key;
use crate::policy::Policy;
use crate::report::inspect::micros;
use crate::report::view::View;
use crate::report::{
    AskedReport, CostReport, DiffCounts, DiffReport, DiffTotals, DifferenceReport, ResourceDecision, VersionReport,
    moment,
};
use crate::shadow::{Counts, Kind, Totals, compared_with};

impl View<'_> {
    /// How a shadow differs from the active policy, and for each difference on a knob that is not held the knob to read. `policy` names
    /// the shadow, or the active policy that only this shadow is compared with.
    ///
    /// # Errors
    ///
    /// Why there is no comparison, with the names of the existing shadows.
    pub(crate) fn diff(&self, policy: &str) -> Result<(DiffReport, Vec<Option<Key>>), String> {
        let place = self.shadow_named(policy)?;
        let Some(policy) = self.policies.running().get(place) else { return Err("no such policy".to_owned()) };
        let Some(shadow) = &policy.shadow else { return Err("not a shadow".to_owned()) };
        let report = DiffReport {
            shadow: version(policy),
            active: shadow.of.as_deref().map(|of| self.version_of(of)),
            health: policy.health.as_str().to_owned(),
            error: policy.health.error().map(str::to_owned),
            agreements: shadow.now.iter().flat_map(|now| now.counts.values()).map(|counts| counts.agreed).sum(),
            differences: Vec::new(),
            totals: totals(policy.name(), &shadow.totals),
            cost: CostReport {
                evaluations: policy.evaluations,
                failures: policy.failures,
                last_evaluation_usec: micros(policy.last_evaluation_seconds),
                all_evaluations_usec: micros(policy.all_evaluations_seconds),
            },
        };
        let differing = shadow.now.as_ref().map(|now| now.differing.clone()).unwrap_or_default();
        let unread = |key: &Key| (!self.ledger.held().contains_key(key)).then_some(*key);
        let reads = differing.iter().map(|(target, knob, _)| unread(&(*target, *knob))).collect();
        let rows = differing.into_iter().map(|(target, knob, kind)| self.difference(place, target, knob, kind));
        Ok((DiffReport { differences: rows.collect(), ..report }, reads))
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
        if let Some(load_failed) =
            self.policies.load_failed().iter().find(|policy| !policy.mode.is_active() && policy.policy == name)
        {
            return Err(format!("shadow `{name}` is not loaded: {}", load_failed.error));
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
        self.policies.find(name).map_or_else(unknown, version)
    }

    fn difference(&self, place: usize, target: Target, knob: Knob, kind: Kind) -> DifferenceReport {
        let in_force = self.ledger.held().get(&(target, knob)).map(|held| held.written);
        let subject = self.pods.subject(target);
        let shadow = self.policies.running().get(place).and_then(|policy| policy.shadow.as_ref());
        let of = shadow.and_then(|shadow| shadow.of.as_deref());
        let active = compared_with(self.ledger.leases().stack(target, knob), of);
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

fn totals(policy: &str, totals: &Totals) -> DiffTotals {
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
        resources_withheld: totals
            .resources_withheld
            .iter()
            .map(|(name, (offer, reason))| (name.to_string(), ResourceDecision::new(name, Some(offer), policy, reason)))
            .collect(),
        evictions_withheld: totals.evictions_withheld,
        latest_evictions: totals.latest_evictions.iter().cloned().collect(),
    }
}
