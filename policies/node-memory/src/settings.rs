//! The kernel settings of the node, and how fast they change.
//!
//! Memory that the kernel keeps free is not available to pods. If `vm.min_free_kbytes` rose at once on a full node, every process would
//! have to reclaim and the OOM killer might start. So it rises by a small part of memory at a time, and only while far more than that is
//! available without swapping. It falls at once.

use qosm_sdk::NodeKnob;

use crate::config::Settings;

/// Allowed range of `vm.min_free_kbytes`, in KiB: Koordinator, pkg/koordlet/util/system/system_resource.go.
const FREE_KIB: std::ops::RangeInclusive<u64> = 10_240..=10_485_760;
/// Hundredths of a percent in a whole.
const MYRIAD: u64 = 10_000;
/// Maximum rise at a time, in hundredths of a percent of memory …
const STEP_PERMYRIAD: u64 = 25;
/// … but at least this, in KiB.
const LEAST_STEP_KIB: u64 = 16 * 1024;
/// A step requires this many times its size to be available.
const ROOM: u64 = 4;

/// State of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether processes just had to wait for memory; `vm.min_free_kbytes` does not rise then.
    pub is_short: bool,
    /// Memory of the node, in KiB.
    pub memory_kib: u64,
    /// Memory available without swapping, in KiB; `None` if unknown.
    pub available_kib: Option<u64>,
}

/// A kernel setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its current value.
    pub value: u64,
    /// The value that it has without this policy.
    pub baseline: u64,
}

/// The decision for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Set this value, for this reason.
    Set(u64, String),
    /// The kernel does not have the setting; the message says so.
    Lacking(String),
    /// Keep this value, with its reason and the reason why it does not change, which is remarked.
    Hold(u64, String, String),
}

/// Decides for each configured setting. `state` returns a setting's state; `None` if the kernel does not have it.
pub fn decide(settings: &Settings, node: Node, state: impl Fn(NodeKnob) -> Option<State>) -> Vec<(NodeKnob, Decision)> {
    let mut decisions = Vec::new();
    let mut decide = |knob: NodeKnob, asked: Option<u64>, decide: &dyn Fn(u64, State) -> Decision| {
        if let Some(asked) = asked {
            let decision = match state(knob) {
                Some(state) => decide(asked, state),
                None => Decision::Lacking(format!("this kernel has no {}", knob.as_str())),
            };
            decisions.push((knob, decision));
        }
    };
    let as_asked = |field: &'static str| move |asked, _| Decision::Set(asked, format!("{field} {asked}"));
    decide(NodeKnob::MinFreeKbytes, settings.min_free_kbytes_factor, &|factor, state| free(factor, node, state));
    decide(NodeKnob::WatermarkScaleFactor, settings.watermark_scale_factor, &as_asked("watermarkScaleFactor"));
    decide(NodeKnob::MemcgReaper, settings.memcg_reap_background, &as_asked("memcgReapBackGround"));
    decide(NodeKnob::GroupIdentity, settings.sched_group_identity_enabled, &as_asked("schedGroupIdentityEnabled"));
    decide(NodeKnob::IdleSaverWmark, settings.sched_idle_saver_wmark, &as_asked("schedIdleSaverWmark"));
    decide(NodeKnob::PageCacheLimit, settings.page_cache_limit_enabled, &as_asked("pageCacheLimitEnabled"));
    decisions
}

/// The value of `vm.min_free_kbytes` for a factor, in KiB.
pub fn free_target(factor: u64, memory_kib: u64) -> u64 {
    let wide = u128::from(memory_kib) * u128::from(factor) / u128::from(MYRIAD);
    u64::try_from(wide).unwrap_or(u64::MAX)
}

fn free(factor: u64, node: Node, state: State) -> Decision {
    let target = free_target(factor, node.memory_kib);
    let asked = format!("minFreeKbytesFactor {factor} of {} KiB is {target} KiB", node.memory_kib);
    if !FREE_KIB.contains(&target) {
        let why = format!(
            "{asked}: {} to {} KiB are taken, and it stays at {}",
            FREE_KIB.start(),
            FREE_KIB.end(),
            state.value
        );
        return Decision::Hold(state.value, asked, why);
    }
    if target <= state.value {
        return Decision::Set(target, asked);
    }
    let step = (node.memory_kib.saturating_mul(STEP_PERMYRIAD) / MYRIAD).max(LEAST_STEP_KIB);
    let step = step.min(target - state.value);
    let because = match node.available_kib {
        _ if node.is_short => "processes wait for memory".to_owned(),
        Some(available) if available < step.saturating_mul(ROOM) => {
            format!("{available} KiB are available, and the next step takes {step}")
        }
        _ => return Decision::Set(state.value.saturating_add(step), asked),
    };
    let why = format!("{asked}; it waits at {}: {because}", state.value);
    Decision::Hold(state.value, asked, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 20;

    fn of(factor: u64, node: Node, value: u64) -> Decision {
        free(factor, node, State { value, baseline: 67_584 })
    }

    fn node(gib: u64, available_gib: u64) -> Node {
        Node { memory_kib: gib * GIB, available_kib: Some(available_gib * GIB), is_short: false }
    }

    #[test]
    fn a_factor_is_hundredths_of_a_percent_of_memory() {
        // The values of Koordinator's own test: 512 GiB.
        for (factor, kib) in [(100, 5_368_709), (88, 4_724_464), (400, 21_474_836)] {
            assert_eq!(free_target(factor, 512 * GIB), kib);
        }
        assert_eq!(free_target(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn what_lies_outside_of_the_range_leaves_it_where_it_is() {
        for (gib, factor) in [(512, 400), (1, 10), (512, 0)] {
            let Decision::Hold(5_368_709, _, why) = of(factor, node(gib, gib), 5_368_709) else {
                panic!("{gib} GiB, {factor}")
            };
            assert!(why.contains("10240 to 10485760 KiB are taken, and it stays at 5368709"), "{why}");
        }
    }

    #[test]
    fn it_rises_by_a_quarter_of_a_percent_at_a_time_and_falls_at_once() {
        let (mut now, mut steps) = (67_584, Vec::new());
        while let Decision::Set(next, reason) = of(100, node(64, 30), now) {
            assert_eq!(reason, "minFreeKbytesFactor 100 of 67108864 KiB is 671088 KiB");
            if next == now {
                break;
            }
            steps.push(next - now);
            now = next;
        }
        assert_eq!(now, 671_088);
        assert_eq!(steps, [167_772, 167_772, 167_772, 100_188]);
        assert_eq!(
            of(50, node(64, 0), now),
            Decision::Set(335_544, "minFreeKbytesFactor 50 of 67108864 KiB is 335544 KiB".into())
        );
    }

    #[test]
    fn it_waits_while_too_little_can_be_had() {
        let short = Node { available_kib: Some(671_087), ..node(64, 0) };
        let Decision::Hold(value, _, why) = of(100, short, 100_000) else { panic!("it does not wait") };
        assert_eq!(value, 100_000);
        assert!(why.contains("waits at 100000: 671087 KiB are available, and the next step takes 167772"), "{why}");
        let enough = Node { available_kib: Some(671_088), ..short };
        assert!(matches!(of(100, enough, 100_000), Decision::Set(267_772, _)));
        let short = Node { is_short: true, ..enough };
        let Decision::Hold(100_000, _, why) = of(100, short, 100_000) else { panic!("it rises") };
        assert!(why.contains("it waits at 100000: processes wait for memory"), "{why}");
        assert!(matches!(of(50, short, 671_088), Decision::Set(335_544, _)));
        // Only an old kernel does not report available memory.
        assert!(matches!(of(100, Node { available_kib: None, ..enough }, 100_000), Decision::Set(267_772, _)));
    }

    #[test]
    fn a_setting_that_the_kernel_lacks_is_told_and_the_others_are_set() {
        let settings =
            Settings { watermark_scale_factor: Some(150), memcg_reap_background: Some(1), ..Settings::default() };
        let has = |knob| (knob == NodeKnob::WatermarkScaleFactor).then_some(State { value: 10, baseline: 10 });
        assert_eq!(
            decide(&settings, node(64, 30), has),
            [
                (NodeKnob::WatermarkScaleFactor, Decision::Set(150, "watermarkScaleFactor 150".into())),
                (NodeKnob::MemcgReaper, Decision::Lacking("this kernel has no memcg_reaper.reap_background".into())),
            ]
        );
    }
}
