//! `qosm doctor`: the node's memory settings, and recommended values for a node that runs batch work beside latency-sensitive pods.
//!
//! Kernel: Documentation/admin-guide/sysctl/vm.rst. The recommended values are the defaults of Koordinator's agent.

use qosm_host::HostFacts;
use qosm_model::knob::{Knob, Value as KnobValue};
use serde_json::{Value, json};

/// Recommended `min_free_kbytes`, in hundredths of a percent of memory.
const RECOMMENDED_FREE: u64 = 100;
/// Bounds of `min_free_kbytes` in Koordinator's agent and the policy node-memory, in KiB …
const FREE_BOUNDS: (u64, u64) = (10_240, 10_485_760);
/// … and the host's upper bound, in hundredths of a percent of memory.
const MOST_FREE: u64 = 500;
/// Recommended `watermark_scale_factor`, in hundredths of a percent of memory.
const RECOMMENDED_SCALE: i64 = 150;

/// A setting, and its recommended value.
struct Advice {
    knob: Knob,
    now: i64,
    recommended: i64,
    why: String,
}

impl Advice {
    fn is_followed(&self) -> bool {
        self.now >= self.recommended
    }
}

fn advices(facts: &HostFacts) -> Vec<Advice> {
    let kib = facts.memory.0 / 1024;
    let free = free_factor(kib);
    let of = |knob: Knob| facts.node_knobs.iter().find(|(known, _)| *known == knob).map(|(_, value)| *value);
    let advice = |knob, recommended, why: String| Some(Advice { knob, now: of(knob)?.number()?, recommended, why });
    let free = free.and_then(|factor| {
        let kib = i64::try_from(kib.saturating_mul(factor) / 10_000).unwrap_or(i64::MAX);
        advice(
            Knob::MinFreeKbytes,
            kib,
            format!(
                "minFreeKbytesFactor {factor}: below it every allocation, of latency-sensitive pods too, waits until it has reclaimed memory \
                 for itself"
            ),
        )
    });
    let scale = advice(
        Knob::WatermarkScaleFactor,
        RECOMMENDED_SCALE,
        format!(
            "watermarkScaleFactor {RECOMMENDED_SCALE}: size of a burst of allocations, in hundredths of a percent of memory, for which the \
             kernel reclaims in the background"
        ),
    );
    free.into_iter().chain(scale).collect()
}

/// The recommended factor: 1 %, or the nearest factor whose result is accepted; `None` if there is none.
fn free_factor(kib: u64) -> Option<u64> {
    let of = |free: u64| free.saturating_mul(10_000);
    let least = of(FREE_BOUNDS.0).checked_div(kib)?.saturating_add(u64::from(of(FREE_BOUNDS.0) % kib != 0));
    let most = of(FREE_BOUNDS.1).checked_div(kib)?.min(MOST_FREE);
    (least <= most).then(|| RECOMMENDED_FREE.clamp(least, most))
}

pub(super) fn rows(facts: &HostFacts) -> Vec<(String, String)> {
    let row = |advice: &Advice| {
        let Advice { knob, now, recommended, why } = advice;
        let text = if advice.is_followed() {
            format!("{now}, enough for colocation ({recommended})")
        } else {
            format!("{now}; for colocation {recommended} is recommended, {why}; policy node-memory sets it")
        };
        (knob.to_string(), text)
    };
    advices(facts).iter().map(row).collect()
}

pub(super) fn document(facts: &HostFacts) -> Value {
    let value = |knob: Knob, value: KnobValue| {
        let advice = advices(facts).into_iter().find(|advice| advice.knob == knob);
        json!({
            "knob": knob.kind_name(),
            "value": match value {
                KnobValue::Number(number) => Value::from(number),
                other => Value::from(other.to_string()),
            },
            "recommended": advice.as_ref().map(|advice| advice.recommended),
            "why": advice.as_ref().map(|advice| advice.why.as_str()),
        })
    };
    facts.node_knobs.iter().map(|&(knob, held)| value(knob, held)).collect()
}

#[cfg(test)]
mod tests {
    use qosm_host::Host;
    use qosm_host::simulated::Spec;
    use qosm_model::unit::Bytes;

    use super::*;

    fn facts(gib: u64, scale: i64) -> HostFacts {
        let mut host = Host::simulated(&Spec { memory: Bytes(gib << 30), ..Spec::default() }).unwrap();
        host.simulated_mut().unwrap().set_node_knob(Knob::WatermarkScaleFactor, Some(scale));
        host.facts()
    }

    #[test]
    fn what_is_recommended_follows_from_memory_and_says_why() {
        for (gib, free) in [(512, 5_368_709), (64, 671_088), (1, 10_485), (2048, 10_307_921)] {
            let advices = advices(&facts(gib, 10));
            assert_eq!(advices.iter().map(|advice| advice.recommended).collect::<Vec<_>>(), [free, 150], "{gib} GiB");
        }
        let rows = rows(&facts(64, 200));
        assert!(
            rows[0].1.starts_with("32768; for colocation 671088 is recommended, minFreeKbytesFactor 100: "),
            "{rows:?}"
        );
        assert_eq!(rows[1].1, "200, enough for colocation (150)");
    }

    #[test]
    fn what_is_recommended_is_what_the_policy_sets() {
        for (kib, factor) in [
            (64 << 20, Some(100)),
            (1 << 30, Some(97)),
            (2 << 30, Some(48)),
            (512 << 10, Some(196)),
            (204_800, Some(500)),
            (204_799, None),
            (0, None),
        ] {
            assert_eq!(free_factor(kib), factor, "{kib}");
            let set = factor.map(|factor| kib * factor / 10_000);
            assert!(set.is_none_or(|set| (FREE_BOUNDS.0..=FREE_BOUNDS.1).contains(&set)), "{kib}: {set:?}");
        }
        let facts = HostFacts { memory: Bytes(128 << 20), ..facts(1, 10) };
        assert_eq!(advices(&facts).len(), 1);
    }

    #[test]
    fn every_setting_of_the_node_is_in_the_document() {
        let document = document(&facts(64, 10));
        assert_eq!(document[0]["recommended"], 671_088);
        assert_eq!((&document[1]["knob"], &document[1]["value"]), (&json!("vm.watermark_scale_factor"), &json!(10)));
    }
}
