//! Held knobs and settings that are not in force, for people.

use std::collections::BTreeSet;

use qosm_host::knob_table;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::layering::{Effective, Layer};
use qosm_model::lease::Lease;

use crate::ledger::HeldKnob;
use crate::report::view::View;
use crate::report::{Adjusted, KnobReport, RefusalReport, RemarkReport, moment};
use crate::table::Access;

/// The layers that configured a policy for a pod, other than its built-in defaults.
pub(super) fn layers(effective: &Effective) -> Vec<String> {
    // Most fields come from few layers: each of these is formatted once.
    let layers: BTreeSet<&Layer> = effective.origins.values().filter(|layer| **layer != Layer::BuiltIn).collect();
    let said: BTreeSet<String> = layers.into_iter().map(ToString::to_string).collect();
    said.into_iter().collect()
}

/// Why a knob has its value, or is to lose it.
pub(super) fn reason_of<'a>(winner: Option<&'a Lease>, held: Option<&'a HeldKnob>) -> &'a str {
    let follows = held.and_then(|held| held.follows.as_deref());
    winner.map(|lease| &*lease.reason).or(follows).unwrap_or("released: the baseline is to come back")
}

impl View<'_> {
    /// All held knobs.
    pub(crate) fn knobs(&self) -> Vec<KnobReport> {
        self.ledger.held().keys().map(|&(target, knob)| self.knob_report(target, knob)).collect()
    }

    pub(super) fn knob_report(&self, target: Target, knob: Knob) -> KnobReport {
        let subject = self.pods.subject(target);
        let held = self.ledger.held().get(&(target, knob));
        let stack = self.ledger.leases().stack(target, knob);
        let winner = self.ledger.ruling(self.pods, target, knob);
        let beneath = stack.iter().filter(|lease| winner.is_none_or(|winner| !std::ptr::eq(*lease, winner)));
        let paused = self.pods.of(target).is_some_and(|entry| entry.access == Access::Paused);
        let state = match held {
            _ if paused => "paused",
            Some(held) if held.pending.is_some() => "pending",
            Some(held) if held.hands_off_until.is_some() => "drifted",
            Some(HeldKnob { follows: Some(_), .. }) if winner.is_none() => "held",
            _ if winner.is_none() => "releasing",
            _ => "held",
        };
        let policy = winner.map(|lease| &lease.holder.policy).or(held.map(|held| &held.policy));
        KnobReport {
            state: state.to_owned(),
            configured_by: policy.map(|policy| self.layers_of(policy, target)).unwrap_or_default(),
            level: subject.level.as_str().to_owned(),
            subject: subject.shown(),
            pod: subject.key(),
            container: subject.container.clone().unwrap_or_default(),
            knob: knob.to_string(),
            path: self.host.file(target, knob).map(|file| file.path).unwrap_or_default(),
            support: if self.host.emulates(knob) { "emulated" } else { "native" }.to_owned(),
            emulation: match knob_table::row(knob).has_file() {
                true => self.host.emulates(knob).then(|| self.emulation(target, knob)),
                false => Some(self.host.describe_core_group(target)),
            },
            value: held.map_or(Value::Max, |held| held.written).into(),
            baseline: held.map_or(Value::Max, |held| held.baseline).into(),
            policy: policy.map(ToString::to_string).unwrap_or_default(),
            module: policy.map(|policy| self.policies.module_of(policy)).unwrap_or_default(),
            reason: reason_of(winner, held).to_owned(),
            since: winner.map(|lease| lease.since).or(held.map(|held| held.since)).map(moment).unwrap_or_default(),
            beneath: beneath.map(|lease| (lease.holder.policy.to_string(), lease.value.into())).collect(),
            adjusted: held
                .and_then(|held| held.adjusted.as_ref())
                .map(|(wanted, why)| Adjusted { wanted: (*wanted).into(), why: why.clone() }),
            drift: held.and_then(|held| held.drift.clone()),
            capped: self.ledger.capped(self.host, target, knob),
            hands_off_until: held.and_then(|held| held.hands_off_until).map(moment),
        }
    }

    /// The layers that configured a policy for the pod that a target is or belongs to, other than its built-in defaults.
    fn layers_of(&self, policy: &str, target: Target) -> Vec<String> {
        let policy = self.policies.find(policy);
        let effective = self.pods.of(target).and_then(|entry| policy?.effective.get(&entry.id));
        effective.map(layers).unwrap_or_default()
    }

    /// Describes how the host emulates a knob, and at the knob that turns the emulation on its state.
    fn emulation(&self, target: Target, knob: Knob) -> String {
        let how = "qosm reclaims through memory.reclaim";
        let by =
            self.host.describe_software_reclaim(target, &[]).filter(|_| self.host.describes_software_reclaim(knob));
        let mut text = by.map_or_else(|| how.to_owned(), |by| format!("{how}: {by}"));
        let Some(report) = self.host.reclaim_report_of(target, knob) else { return text };
        if let Some((high, low)) = report.levels {
            text.push_str(&format!("; now from {high} down to {low}"));
        }
        text.push_str(&format!(
            "; {} rounds, {} reclaimed, {} times all there was",
            report.rounds, report.reclaimed, report.exhausted
        ));
        if let Some(errno) = report.last_error {
            text.push_str("; the kernel answers ");
            text.push_str(errno);
        }
        text
    }

    pub(super) fn refusal_reports(&self, wanted: impl Fn(Target) -> bool) -> Vec<RefusalReport> {
        self.ledger
            .refusals()
            .iter()
            .filter(|((target, _), _)| wanted(*target))
            .map(|(&(target, knob), refusal)| {
                let subject = self.pods.subject(target);
                RefusalReport {
                    subject: subject.shown(),
                    pod: subject.key(),
                    knob: knob.to_string(),
                    wanted: refusal.wanted.into(),
                    policy: refusal.policy.to_string(),
                    kind: if refusal.unavailable { "unavailable" } else { "refused" }.to_owned(),
                    why: refusal.why.clone(),
                    since: moment(refusal.since),
                }
            })
            .chain(self.denied_reports(&wanted))
            .collect()
    }

    /// Remarks of active policies: what they wanted of a knob and did not do.
    pub(crate) fn remarks(&self, wanted: impl Fn(Target) -> bool) -> Vec<RemarkReport> {
        let mut remarks = Vec::new();
        for policy in self.policies.active() {
            for remark in policy.remarks.iter().filter(|remark| wanted(remark.target)) {
                let subject = self.pods.subject(remark.target);
                remarks.push(RemarkReport {
                    subject: subject.shown(),
                    pod: subject.key(),
                    knob: remark.knob.to_string(),
                    policy: policy.name().to_string(),
                    why: remark.reason.to_string(),
                });
            }
        }
        remarks
    }

    /// All settings that are not in force.
    pub(crate) fn refusals(&self) -> Vec<RefusalReport> {
        self.refusal_reports(|_| true)
    }

    /// Leases that do not count, since their policies may not act there.
    fn denied_reports(&self, wanted: impl Fn(Target) -> bool) -> Vec<RefusalReport> {
        self.ledger
            .denied(wanted)
            .into_iter()
            .map(|(target, knob, lease)| {
                let subject = self.pods.subject(target);
                RefusalReport {
                    subject: subject.shown(),
                    pod: subject.key(),
                    knob: knob.to_string(),
                    wanted: lease.value.into(),
                    policy: lease.holder.policy.to_string(),
                    kind: "denied".to_owned(),
                    why: lease.denied.as_deref().unwrap_or_default().to_owned(),
                    since: moment(lease.since),
                }
            })
            .collect()
    }
}
