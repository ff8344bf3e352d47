//! Decides when amounts are published, and keeps what was published last.
//!
//! Koordinator: `pkg/slo-controller/noderesource/resource_calculator.go`, `…/plugins/util/util.go`.

use std::collections::BTreeMap;
use std::fmt;

use crate::amounts::{Amounts, Resource};
use crate::strategy::Strategy;

const SECOND_USEC: u64 = 1_000_000;
/// Time in microseconds that a publication may take to appear in the Node object.
const CONFIRM_USEC: u64 = 60 * SECOND_USEC;

/// An amount under a name, for both `status.capacity` and `status.allocatable`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Thousandths of a CPU, or bytes; already in the unit of the resource.
    pub amount: u64,
    /// How the amount was computed.
    pub reason: String,
}

/// The last publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// When it was published; `None` if this policy has not published yet.
    pub at_usec: Option<u64>,
    /// The amounts by resource name; empty after a withdrawal.
    pub offers: BTreeMap<String, Offer>,
    /// Batch CPU and memory by NUMA zone.
    pub zones: BTreeMap<u32, Amounts>,
    /// Batch CPU and memory before third parties' allocations are subtracted.
    pub origin: Option<Amounts>,
}

/// Why amounts are published now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A resource is new.
    Appears {
        /// Name of the resource.
        name: String,
    },
    /// A resource is withdrawn.
    Disappears {
        /// Name of the resource.
        name: String,
    },
    /// An amount changed by more than the threshold.
    Changed {
        /// Name of the resource.
        name: String,
        /// The amount before.
        from: u64,
        /// The new amount.
        to: u64,
    },
    /// A zone's amount changed by more than the threshold, or the zone came or went.
    ZoneChanged {
        /// Number of the NUMA node.
        zone: u32,
    },
    /// The Node object does not have the amount that was published last.
    Lost {
        /// Name of the resource.
        name: String,
    },
    /// The last publication is older than the update interval.
    Elapsed {
        /// Age of the last publication.
        seconds: u64,
    },
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Appears { name } => write!(f, "{name} is new"),
            Self::Disappears { name } => write!(f, "{name} is withdrawn"),
            Self::Changed { name, from, to } => write!(f, "{name} changed from {from} to {to}"),
            Self::ZoneChanged { zone } => write!(f, "zone node-{zone} changed"),
            Self::Lost { name } => write!(f, "the Node object does not have {name} as it was published"),
            Self::Elapsed { seconds } => write!(f, "last published {seconds} s ago"),
        }
    }
}

impl Published {
    /// Why `new` has to be published now; `None` if it does not. `on_node` has the amounts of the Node object; until this policy has
    /// published anything, they count as the previous ones.
    pub fn due(
        &self,
        new: &Self,
        on_node: &BTreeMap<String, u64>,
        names: &[&str],
        strategy: &Strategy,
        now_usec: u64,
    ) -> Option<Due> {
        let is_larger = |from: u64, to: u64| strategy.diff_threshold.is_exceeded(from.abs_diff(to), from);
        let own = |name: &str| self.offers.get(name).map(|offer| offer.amount);
        let all = names.iter().copied().chain(self.offers.keys().map(String::as_str));
        for name in all.clone() {
            let from = if self.at_usec.is_some() { own(name) } else { on_node.get(name).copied() };
            let to = new.offers.get(name).map(|offer| offer.amount);
            let name = name.to_owned();
            match (from, to) {
                (None, Some(_)) => return Some(Due::Appears { name }),
                (Some(_), None) => return Some(Due::Disappears { name }),
                (Some(from), Some(to)) if is_larger(from, to) => return Some(Due::Changed { name, from, to }),
                _ => {}
            }
        }
        for zone in self.zones.keys().chain(new.zones.keys()) {
            let is_changed = match (self.zones.get(zone), new.zones.get(zone)) {
                (Some(from), Some(to)) => Resource::EACH.iter().any(|each| is_larger(from.of(*each), to.of(*each))),
                (from, to) => from != to,
            };
            if is_changed {
                return Some(Due::ZoneChanged { zone: *zone });
            }
        }
        let Some(at) = self.at_usec else {
            // The amounts on the node are close enough, but this policy has not published them yet.
            return (!new.offers.is_empty()).then_some(Due::Elapsed { seconds: 0 });
        };
        let age = now_usec.saturating_sub(at);
        if age > CONFIRM_USEC
            && let Some(name) = all.clone().find(|name| on_node.get(*name).copied() != own(name))
        {
            return Some(Due::Lost { name: name.to_owned() });
        }
        let is_old = age > strategy.update_seconds.saturating_mul(SECOND_USEC);
        (is_old && !new.offers.is_empty()).then_some(Due::Elapsed { seconds: age / SECOND_USEC })
    }

    /// The annotation with the amounts before third parties' allocations are subtracted, under these names.
    pub fn origin_annotation(&self, cpu: &str, memory: &str) -> Option<String> {
        let origin = self.origin?;
        let text = |amount: u64| serde_json::Value::String(amount.to_string());
        let resources: BTreeMap<_, _> = [(cpu, text(origin.cpu_milli)), (memory, text(origin.memory_bytes))].into();
        Some(serde_json::json!({ "resources": resources }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::Decimal;

    const CPU: &str = "kubernetes.io/batch-cpu";
    const MEMORY: &str = "kubernetes.io/batch-memory";

    fn published(at_seconds: Option<u64>, cpu: Option<u64>, memory: Option<u64>) -> Published {
        let offers = [(CPU, cpu), (MEMORY, memory)]
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Offer { amount: amount?, reason: String::new() })));
        Published { at_usec: at_seconds.map(|at| at * SECOND_USEC), offers: offers.collect(), ..Published::default() }
    }

    fn node(cpu: Option<u64>, memory: Option<u64>) -> BTreeMap<String, u64> {
        let amounts = [(CPU, cpu), (MEMORY, memory)];
        amounts.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect()
    }

    fn due(old: &Published, new: &Published, on_node: &BTreeMap<String, u64>, now: u64) -> Option<String> {
        let due = old.due(new, on_node, &[CPU, MEMORY], &Strategy::default(), now * SECOND_USEC);
        due.map(|due| due.to_string())
    }

    #[test]
    fn a_change_above_the_threshold_is_published_at_once() {
        for (from, to, is_due) in [
            (1000, 1000, false),
            (1000, 1100, false),
            (1000, 1101, true),
            (1000, 900, false),
            (1000, 899, true),
            (0, 0, false),
            (0, 1, true),
            (9, 10, true),
            (10, 9, false),
            (1000, 0, true),
        ] {
            let (old, new) = (published(Some(0), Some(from), Some(5)), published(None, Some(to), Some(5)));
            let expected = is_due.then(|| format!("{CPU} changed from {from} to {to}"));
            assert_eq!(due(&old, &new, &node(Some(from), Some(5)), 10), expected, "{from} {to}");
        }
        let strategy = Strategy { diff_threshold: Decimal::ONE, ..Strategy::default() };
        let (old, new) = (published(Some(0), Some(1000), None), published(None, Some(2000), None));
        assert_eq!(old.due(&new, &node(Some(1000), None), &[CPU], &strategy, 0), None);
    }

    #[test]
    fn a_resource_that_comes_or_goes_is_published_at_once() {
        let both = published(Some(0), Some(1000), Some(5));
        for (old, new, text) in [
            (published(Some(0), None, None), both.clone(), Some(format!("{CPU} is new"))),
            (published(Some(0), Some(1000), None), both.clone(), Some(format!("{MEMORY} is new"))),
            (both.clone(), published(None, Some(1000), None), Some(format!("{MEMORY} is withdrawn"))),
            (both.clone(), published(None, None, None), Some(format!("{CPU} is withdrawn"))),
            (published(Some(0), None, None), published(None, None, None), None),
        ] {
            assert_eq!(due(&old, &new, &node(Some(1000), Some(5)), 10), text);
        }
    }

    #[test]
    fn a_name_that_is_configured_no_more_is_withdrawn() {
        let mut old = published(Some(0), Some(1000), None);
        old.offers.insert("alibabacloud.com/reclaimed-cpu".into(), Offer { amount: 7, reason: String::new() });
        let new = published(None, Some(1000), None);
        let expected = Some("alibabacloud.com/reclaimed-cpu is withdrawn".to_owned());
        assert_eq!(due(&old, &new, &node(Some(1000), None), 10), expected);
    }

    #[test]
    fn it_is_published_again_after_the_interval() {
        let (old, new) = (published(Some(100), Some(1000), Some(5)), published(None, Some(1000), Some(5)));
        let on_node = node(Some(1000), Some(5));
        for (now, text) in [(100, None), (400, None), (401, Some("last published 301 s ago"))] {
            assert_eq!(due(&old, &new, &on_node, now).as_deref(), text, "{now}");
        }
        let withdrawn = published(Some(100), None, None);
        assert_eq!(due(&withdrawn, &published(None, None, None), &node(None, None), 9999), None, "nothing to repeat");
    }

    #[test]
    fn what_the_node_lost_is_published_again_after_a_while() {
        let (old, new) = (published(Some(100), Some(1000), Some(5)), published(None, Some(1000), Some(5)));
        for (on_node, now, is_due) in [
            (node(None, None), 160, false),
            (node(None, None), 161, true),
            (node(Some(999), Some(5)), 161, true),
            (node(Some(1000), Some(5)), 161, false),
        ] {
            let expected = is_due.then(|| format!("the Node object does not have {CPU} as it was published"));
            assert_eq!(due(&old, &new, &on_node, now), expected);
        }
        let withdrawn = published(Some(100), None, None);
        let seen = due(&withdrawn, &published(None, None, None), &node(None, Some(5)), 161);
        assert_eq!(seen, Some(format!("the Node object does not have {MEMORY} as it was published")), "still there");
    }

    #[test]
    fn what_another_has_published_counts_until_this_policy_has() {
        let none = Published::default();
        for (new, on_node, text) in [
            (published(None, Some(1000), None), node(Some(1000), None), Some("last published 0 s ago".to_owned())),
            (
                published(None, Some(2000), None),
                node(Some(1000), None),
                Some(format!("{CPU} changed from 1000 to 2000")),
            ),
            (published(None, None, None), node(Some(1000), None), Some(format!("{CPU} is withdrawn"))),
            (published(None, None, None), node(None, None), None),
        ] {
            assert_eq!(due(&none, &new, &on_node, 10), text);
        }
    }

    #[test]
    fn zones_are_published_by_the_same_threshold() {
        let with = |zones: &[(u32, u64, u64)]| Published {
            zones: zones.iter().map(|(zone, cpu, memory)| (*zone, Amounts::new(*cpu, *memory))).collect(),
            ..published(Some(0), Some(1000), None)
        };
        let on_node = node(Some(1000), None);
        for (old, new, zone) in [
            (with(&[(0, 100, 10), (1, 100, 10)]), with(&[(0, 110, 10), (1, 100, 11)]), None),
            (with(&[(0, 100, 10), (1, 100, 10)]), with(&[(0, 111, 10), (1, 100, 10)]), Some(0)),
            (with(&[(0, 100, 10), (1, 100, 10)]), with(&[(0, 100, 10), (1, 100, 8)]), Some(1)),
            (with(&[(0, 100, 10)]), with(&[(0, 0, 0)]), Some(0)),
            (with(&[(0, 100, 10)]), with(&[]), Some(0)),
            (with(&[]), with(&[(3, 0, 0)]), Some(3)),
        ] {
            assert_eq!(due(&old, &new, &on_node, 1), zone.map(|zone| format!("zone node-{zone} changed")));
        }
    }

    #[test]
    fn the_origin_is_an_annotation_with_quantities() {
        let published = Published { origin: Some(Amounts::new(25_000, 1 << 30)), ..Published::default() };
        let text = r#"{"resources":{"kubernetes.io/batch-cpu":"25000","kubernetes.io/batch-memory":"1073741824"}}"#;
        assert_eq!(published.origin_annotation(CPU, MEMORY).as_deref(), Some(text));
        assert_eq!(Published::default().origin_annotation(CPU, MEMORY), None);
    }
}
