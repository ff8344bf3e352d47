//! The policies behind the decisions, in short: the modules that run, the layers that configured them for a pod, and what shadows would
//! do.

use std::borrow::Cow;
use std::collections::BTreeMap;

use qosm_model::knob::{Target, Value};
use qosm_model::lease::Leases;
use qosm_model::pod::PodId;
use serde::{Deserialize, Serialize};

use super::{container, is_container, name};
use crate::ledger::Key;
use crate::policy::Policy;
use crate::report::WireValue;
use crate::report::knobs::layers;
use crate::report::view::View;
use crate::shadow::{Kind, Shadow, compared_with};

/// A policy with a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyUsage {
    /// Its name.
    pub policy: String,
    /// Name and version that the module gives itself.
    pub module: String,
    /// The module's digest.
    pub digest: String,
    /// How a shadow compares; missing for an active policy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shadow: Option<ShadowUsage>,
}

/// A shadow beside the policy that it is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowUsage {
    /// The active policy; missing if each knob is compared with the policy that holds it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<String>,
    /// Number of knobs on which both agree now. Like `differing`, missing while the shadow does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agreeing: Option<u64>,
    /// Number of knobs on which they differ now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub differing: Option<u64>,
    /// Number of comparisons: one per tick while the shadow runs.
    pub ticks: u64,
    /// Number of comparisons that found a difference.
    pub differing_ticks: u64,
}

/// A knob that a shadow, or what it is compared with, asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowedUsage {
    /// The shadow.
    pub policy: String,
    /// The knob.
    pub knob: Cow<'static, str>,
    /// Level of the knob: `container`, `pod` or `tier`, as [`super::RemarkUsage::level`].
    #[serde(skip_serializing_if = "is_container", default = "container")]
    pub level: Cow<'static, str>,
    /// `agrees`, `differs`, `only-active` or `only-shadow`.
    pub kind: Cow<'static, str>,
    /// What the kernel showed last; missing where the knob is not held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_force: Option<WireValue>,
    /// What the active policy asks for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub active: Option<WireValue>,
    /// What the shadow would ask for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wanted: Option<WireValue>,
    /// Reason in the shadow's words.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
}

/// The compared knobs by target: worked out once per report, and empty without a shadow.
pub(super) type Shadowed = BTreeMap<Target, Vec<ShadowedUsage>>;

impl View<'_> {
    /// All policies with a module, in the order of evaluation.
    pub(super) fn policy_usage(&self) -> Vec<PolicyUsage> {
        let usage = |policy: &Policy| PolicyUsage {
            policy: policy.name().to_string(),
            module: format!("{}@{}", policy.description.name, policy.description.version),
            digest: policy.module.digest().to_string(),
            shadow: policy.shadow.as_ref().map(Shadow::usage),
        };
        self.policies.iter().map(usage).collect()
    }

    /// By active policy, the layers that configured it for a pod, other than its built-in defaults.
    pub(super) fn configured_by(&self, pod: PodId) -> BTreeMap<String, Vec<String>> {
        let said = |policy: &Policy| {
            let layers = layers(policy.effective.get(&pod)?);
            (!layers.is_empty()).then(|| (policy.name().to_string(), layers))
        };
        self.policies.active().filter_map(said).collect()
    }

    /// The compared knobs of all running shadows.
    pub(super) fn shadowed(&self) -> Shadowed {
        let mut shadowed = Shadowed::new();
        for policy in self.policies.iter() {
            let Some(shadow) = &policy.shadow else { continue };
            let in_force = |key: Key| self.ledger.held().get(&key).map(|held| held.written);
            for (target, row) in shadow.rows(policy.name(), self.ledger.leases(), in_force) {
                shadowed.entry(target).or_default().push(row);
            }
        }
        shadowed
    }
}

impl Shadow {
    /// Each knob of the last comparison, in order; nothing while the shadow does not run.
    fn rows(
        &self,
        shadow: &str,
        active: &Leases,
        in_force: impl Fn(Key) -> Option<Value>,
    ) -> Vec<(Target, ShadowedUsage)> {
        let Some(now) = &self.now else { return Vec::new() };
        let differing: BTreeMap<Key, Kind> =
            now.differing.iter().map(|&(target, knob, kind)| ((target, knob), kind)).collect();
        let mut keys: Vec<Key> = self.leases.held().map(|(target, knob, _)| (target, knob)).collect();
        keys.extend(differing.keys());
        keys.sort_unstable();
        keys.dedup();
        let row = |(target, knob): Key| {
            let wanted = self.leases.stack(target, knob).first();
            let active = compared_with(active.stack(target, knob), self.of.as_deref());
            let row = ShadowedUsage {
                policy: shadow.to_owned(),
                knob: name(knob),
                level: target.level().as_str().into(),
                kind: differing.get(&(target, knob)).map_or("agrees", |kind| kind.as_str()).into(),
                in_force: in_force((target, knob)).map(Into::into),
                active: active.map(|lease| lease.value.into()),
                wanted: wanted.map(|lease| lease.value.into()),
                reason: wanted.map(|lease| lease.reason.to_string()).unwrap_or_default(),
            };
            (target, row)
        };
        keys.into_iter().map(row).collect()
    }

    fn usage(&self) -> ShadowUsage {
        let counts = || self.now.as_ref().map(|now| now.counts.values());
        ShadowUsage {
            of: self.of.as_deref().map(str::to_owned),
            agreeing: counts().map(|counts| counts.map(|of_knob| of_knob.agreed).sum()),
            differing: self.now.as_ref().map(|now| u64::try_from(now.differing.len()).unwrap_or(u64::MAX)),
            ticks: self.totals.ticks,
            differing_ticks: self.totals.differing_ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::knob::Knob;
    use qosm_model::lease::{Holder, Priority, Timestamp};
    use qosm_model::pod::ContainerId;

    use super::*;
    use crate::now::Now;
    use crate::shadow::Comparison;

    const APP: Target = Target::Container(ContainerId(1));

    fn leases(policy: &str, rows: &[(Target, Knob, i64)]) -> Leases {
        let mut leases = Leases::default();
        for &(target, knob, value) in rows {
            let holder = Holder { policy: policy.into(), priority: Priority(100) };
            leases.acquire(&holder, target, knob, Value::Number(value), format!("{value}").into(), Timestamp(0));
        }
        leases
    }

    #[test]
    fn a_shadow_stands_beside_what_is_asked_for_and_what_is_in_force() {
        let pod = Target::Pod(PodId(1));
        let active = leases("burst", &[(APP, Knob::CfsQuota, 12), (APP, Knob::CfsBurst, 5), (pod, Knob::CfsBurst, 5)]);
        let wanted = leases("next", &[(APP, Knob::CfsQuota, 20), (APP, Knob::CfsBurst, 5), (pod, Knob::CfsQuota, 9)]);
        let mut shadow = Shadow { of: Some("burst".into()), leases: wanted, ..Shadow::default() };
        let in_force = |(target, knob): Key| (target == APP && knob == Knob::CfsQuota).then_some(Value::Number(11));
        let rows = |shadow: &Shadow| -> Vec<String> {
            let shown = |value: Option<WireValue>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
            let text = |(_, row): (Target, ShadowedUsage)| {
                let values = [row.in_force, row.active, row.wanted].map(shown).join(" ");
                format!("{} {} {}: {values} {}", row.level, row.knob, row.kind, row.reason)
            };
            let mut rows: Vec<_> = shadow.rows("next", &active, in_force).into_iter().map(text).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(rows(&shadow), Vec::<String>::new(), "nothing was compared yet");
        assert_eq!(shadow.usage(), ShadowUsage { of: Some("burst".into()), ..ShadowUsage::default() });
        let comparison = Comparison::new(&active, Some("burst"), &shadow.leases);
        shadow.compared(comparison, Now::default());
        let expected = [
            "container cpu.burst agrees: - 5 5 5",
            "container cpu.quota differs: 11 12 20 20",
            "pod cpu.burst only-active: - 5 - ",
            "pod cpu.quota only-shadow: - - 9 9",
        ];
        assert_eq!(rows(&shadow), expected);
        let usage = ShadowUsage {
            of: Some("burst".into()),
            agreeing: Some(1),
            differing: Some(3),
            ticks: 1,
            differing_ticks: 1,
        };
        assert_eq!(shadow.usage(), usage);
    }
}
