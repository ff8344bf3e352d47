//! Counts how often shadows asked for the same as what they are compared with, for each knob of one container.

use std::collections::BTreeMap;

use qosm_agent::report::{PolicyUsage, ShadowedUsage, WireValue};
use serde::Serialize;

/// A shadow, a level and a knob. Only knobs that were compared have an entry, so that few are kept.
type Key = (String, String, String);

/// Counted moments by key.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<Key, Tally>);

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    agreed: u64,
    differed: u64,
}

/// A knob that is or was compared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared<'a> {
    policy: &'a str,
    level: &'a str,
    knob: &'a str,
    /// How they compare now. Missing, like the fields below, if neither side asks for the knob any more.
    kind: Option<&'a str>,
    in_force: Option<WireValue>,
    active: Option<WireValue>,
    wanted: Option<WireValue>,
    reason: Option<&'a str>,
    /// Number of moments in which both asked for the same.
    agreed: u64,
    /// Number of moments in which they did not.
    differed: u64,
}

/// Whether the counts of a shadow continue: it still runs, with the same module.
pub(super) fn stays(shadow: &str, before: &[PolicyUsage], now: &[PolicyUsage]) -> bool {
    let digest = |policies: &[PolicyUsage]| -> Option<String> {
        let found = policies.iter().find(|policy| policy.policy == shadow && policy.shadow.is_some());
        found.map(|policy| policy.digest.clone())
    };
    let after = digest(now);
    after.is_some() && after == digest(before)
}

impl Tallies {
    pub(super) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        self.0.retain(|(shadow, _, _), _| stays(shadow));
    }

    /// Counts a moment.
    pub(super) fn take(&mut self, shadowed: &[ShadowedUsage]) {
        for one in shadowed {
            let tally = self.0.entry(key(one)).or_default();
            if one.kind == "agrees" { tally.agreed += 1 } else { tally.differed += 1 }
        }
    }

    /// All counted knobs, with what is asked for now.
    pub(super) fn compared<'a>(&'a self, now: &'a [ShadowedUsage]) -> Vec<Compared<'a>> {
        let compared = |(counted, tally): (&'a Key, &Tally)| {
            let (policy, level, knob) = counted;
            let is_it = |one: &&ShadowedUsage| (&one.policy, &*one.level, &*one.knob) == (policy, &**level, &**knob);
            let now = now.iter().find(is_it);
            Compared {
                policy,
                level,
                knob,
                kind: now.map(|now| &*now.kind),
                in_force: now.and_then(|now| now.in_force),
                active: now.and_then(|now| now.active),
                wanted: now.and_then(|now| now.wanted),
                reason: now.map(|now| now.reason.as_str()),
                agreed: tally.agreed,
                differed: tally.differed,
            }
        };
        self.0.iter().map(compared).collect()
    }
}

fn key(of: &ShadowedUsage) -> Key {
    (of.policy.clone(), of.level.clone().into_owned(), of.knob.clone().into_owned())
}
