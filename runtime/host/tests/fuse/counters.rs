//! Counters that advance, fail, and disappear.

use std::time::Duration;

use qosm_host::resctrl::{CacheSample, Counters, Traffic};
use qosm_model::unit;
use qosm_resctrl_fuse::{Bytes, BytesPerSecond, CounterFault, Demand, Event, RemovedFiles};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn demand(machine: &Machine, group: &str) {
    let demand = Demand { occupancy: Bytes(4 << 20), bandwidth: BytesPerSecond(2_000_000_000), local_percent: 75 };
    machine.others(|tree| tree.set_group_demand(group, 0, demand)).unwrap();
}

fn counters(machine: &Machine, group: Option<&Group>) -> Counters {
    Counters::open(&machine.groups, group).unwrap()
}

fn first(counters: &mut Counters) -> CacheSample {
    counters.read().unwrap()[0]
}

/// Equal within 1 %: the kernel counts in units of its own.
fn near(value: Option<unit::Bytes>, expected: u64) -> bool {
    value.is_some_and(|value| value.0.abs_diff(expected) <= expected / 100)
}

#[test]
fn a_difference_of_samples_is_the_traffic_and_a_control_group_has_its_monitor_groups() {
    for profile in [Profile::intel(), Profile::sub_numa()] {
        let Some(machine) = Machine::of(profile) else { return };
        let (be, x) = (control("be"), monitor(Some("be"), "x"));
        for group in [&be, &x] {
            machine.groups.create(group).unwrap();
        }
        demand(&machine, "qosm-be/mon_groups/qosm-x");
        machine.others(|tree| tree.advance(5 * SECOND));
        for group in [&be, &x] {
            let mut counters = counters(&machine, Some(group));
            assert_eq!(counters.read().unwrap().iter().map(|sample| sample.cache.0).collect::<Vec<_>>(), [0, 1]);
            let earlier = first(&mut counters);
            assert!(near(earlier.llc_occupancy, 4 << 20), "{group}: {earlier:?}");
            machine.others(|tree| tree.advance(SECOND));
            let traffic = first(&mut counters).traffic_since(&earlier);
            assert!(near(traffic.total, 2_000_000_000) && near(traffic.local, 1_500_000_000), "{group}: {traffic:?}");
        }
        let elsewhere = first(&mut counters(&machine, None));
        assert_eq!(elsewhere.mbm_total, Some(unit::Bytes(0)), "{elsewhere:?}");
    }
}

#[test]
fn words_in_the_place_of_numbers_are_missing_values() {
    let Some(machine) = Machine::of(Profile::intel()) else { return };
    machine.groups.create(&control("be")).unwrap();
    demand(&machine, "qosm-be");
    machine.others(|tree| tree.advance(SECOND));
    let mut counters = counters(&machine, Some(&control("be")));
    let earlier = first(&mut counters);
    for fault in [CounterFault::Unavailable, CounterFault::Error, CounterFault::Unassigned] {
        let event = Event::MbmTotalBytes;
        machine.others(|tree| tree.set_counter_fault("qosm-be", 0, event, Some(fault))).unwrap();
        let sample = first(&mut counters);
        assert!(
            sample.mbm_total.is_none() && sample.mbm_local.is_some() && sample.llc_occupancy.is_some(),
            "{sample:?}"
        );
        assert_eq!(sample.traffic_since(&earlier), Traffic { total: None, local: Some(unit::Bytes(0)) });
        machine.others(|tree| tree.set_counter_fault("qosm-be", 0, event, None)).unwrap();
        assert_eq!(first(&mut counters), earlier, "{fault:?}");
    }
}

#[test]
fn counters_that_a_machine_lacks_are_missing_values() {
    let Some(machine) = Machine::of(Profile::haswell()) else { return };
    let sample = first(&mut counters(&machine, None));
    assert!(sample.llc_occupancy.is_some() && sample.mbm_total.is_none() && sample.mbm_local.is_none(), "{sample:?}");
    let Some(machine) = Machine::of(Profile::l2_only()) else { return };
    assert!(counters(&machine, None).read().unwrap().is_empty());
}

#[test]
fn a_removed_group_is_reported_by_whichever_error_of_the_kernel() {
    for removed_files in [RemovedFiles::Enoent, RemovedFiles::Enodev] {
        let Some(machine) = Machine::of(Profile { removed_files, ..Profile::intel() }) else { return };
        machine.groups.create(&control("be")).unwrap();
        let mut counters = counters(&machine, Some(&control("be")));
        counters.read().unwrap();
        machine.groups.remove(&control("be")).unwrap();
        assert!(counters.read().unwrap_err().is_gone(), "{removed_files:?}");
        assert!(Counters::open(&machine.groups, Some(&control("be"))).unwrap_err().is_gone());
    }
}

#[test]
fn a_removed_cache_is_distinguished_by_opening_again() {
    let Some(machine) = Machine::of(Profile::intel()) else { return };
    machine.groups.create(&control("be")).unwrap();
    let mut before = counters(&machine, Some(&control("be")));
    machine.others(|tree| tree.offline_l3(1));
    assert!(before.read().unwrap_err().is_gone());
    // The other counter was read nevertheless.
    assert!(before.samples()[0].llc_occupancy.is_some() && before.samples()[1].llc_occupancy.is_none());
    assert_eq!(counters(&machine, Some(&control("be"))).read().unwrap().len(), 1);
}
