//! Properties that hold for all configurations and measurements.

use node_memory::config::{Rating, Settings};
use node_memory::rating::{self, Inputs, Waiting};
use node_memory::settings::{Decision, Node, State, decide, free_target};
use proptest::prelude::*;
use qosm_sdk::NodeKnob;

proptest! {
    #[test]
    fn what_is_kept_free_never_overshoots_and_never_leaves_its_range(
        factor in 0..20_000_u64, memory_kib in 1..(4_u64 << 30), available in any::<Option<u64>>(), value in 0..20_000_000_u64,
        is_short in any::<bool>(),
    ) {
        let settings = Settings { min_free_kbytes_factor: Some(factor), ..Settings::default() };
        let node = Node { memory_kib, available_kib: available, is_short };
        let target = free_target(factor, memory_kib);
        let decisions = decide(&settings, node, |_| Some(State { value, baseline: 67_584 }));
        prop_assert_eq!(decisions.len(), 1);
        match &decisions[0] {
            (NodeKnob::MinFreeKbytes, Decision::Set(next, _)) => {
                prop_assert!((10_240..=10_485_760).contains(&target));
                prop_assert!(*next <= target && (*next == target || *next > value), "{} from {} to {}", next, value, target);
                prop_assert!(next.saturating_sub(value) <= (memory_kib / 400).max(16_384));
                prop_assert!(!is_short || *next <= value);
            }
            (_, Decision::Hold(stays, ..)) => prop_assert_eq!(*stays, value),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn batch_is_never_left_less_than_its_share_and_never_waits_where_enough_is_free(
        free in 0..(64_u64 << 30), min in 0..(4_u64 << 30), to_low in 0..(4_u64 << 30), to_high in 0..(4_u64 << 30),
        used in 0..(64_u64 << 30), stall in proptest::option::of(0..100_u64), waited in any::<bool>(),
        calm_usec in 0..10_000_000_u64,
    ) {
        let config = Rating { enable: true, ..Rating::default() };
        let (low, high) = (min + to_low, min + to_low + to_high);
        let inputs = Inputs { free, min, low, high, used, stall_percent: stall, window_usec: 1_000_000 };
        let before = waited.then_some(Waiting { bound: used.max(1 << 20), least: used / 2, calm_usec });
        match rating::decide(&config, &inputs, before) {
            None => prop_assert!(free > rating::mark(&config, &inputs) || free >= high),
            Some((waiting, why)) => {
                prop_assert!(free < high);
                prop_assert!(waiting.bound >= (used / 2).max(1 << 20));
                prop_assert!(waiting.bound <= used.max(1 << 20));
                prop_assert!(why.is_empty() != (waiting.calm_usec == 0));
            }
        }
    }
}
