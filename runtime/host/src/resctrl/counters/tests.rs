use super::super::availability::Vendor;
use super::super::fixture::{self, Fixture};
use super::super::group::GroupName;
use super::*;

fn open(fixture: &Fixture) -> Result<Counters, ResctrlError> {
    let group = Group::Control(GroupName::new("be").unwrap());
    Counters::open(&fixture.groups(Vendor::Intel), Some(&group))
}

fn sample(cache: u32, llc_occupancy: Option<u64>, mbm_total: Option<u64>, mbm_local: Option<u64>) -> CacheSample {
    CacheSample {
        cache: CacheId(cache),
        llc_occupancy: llc_occupancy.map(Bytes),
        mbm_total: mbm_total.map(Bytes),
        mbm_local: mbm_local.map(Bytes),
    }
}

#[test]
fn reads_each_cache_and_takes_words_for_missing() {
    let fixture = fixture::intel();
    fixture.add(&[
        ("qosm-be/mon_data/mon_L3_08/llc_occupancy", "65536\n"),
        ("qosm-be/mon_data/mon_L3_08/mbm_total_bytes", "18446744073709551615\n"),
        ("qosm-be/mon_data/mon_L3_08/mbm_local_bytes", "Unavailable\n"),
        ("qosm-be/mon_data/mon_L3_00/llc_occupancy", "Error\n"),
        ("qosm-be/mon_data/mon_L3_00/mbm_total_bytes", "Unassigned\n"),
        // Additional files of later kernels.
        ("qosm-be/mon_data/mon_PERF_PKG_00/core_energy", "1.5\n"),
    ]);
    let mut counters = open(&fixture).unwrap();
    let expected = [sample(0, None, None, None), sample(8, Some(65_536), Some(u64::MAX), None)];
    assert_eq!(counters.read().unwrap(), expected);

    fixture.add(&[("qosm-be/mon_data/mon_L3_08/mbm_local_bytes", "7\n")]);
    assert_eq!(counters.read().unwrap()[1].mbm_local, Some(Bytes(7)));
    assert_eq!(counters.samples()[1].mbm_local, Some(Bytes(7)));
}

#[test]
fn parts_of_a_cache_are_summed_unless_the_whole_is_there() {
    let fixture = fixture::intel();
    fixture.add(&[
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_00/llc_occupancy", "100\n"),
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_01/llc_occupancy", "20\n"),
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_00/mbm_total_bytes", "1\n"),
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_01/mbm_total_bytes", "Unavailable\n"),
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_00/mbm_local_bytes", "1\n"),
        ("qosm-be/mon_data/mon_L3_00/mon_sub_L3_01/mbm_local_bytes", "2\n"),
        ("qosm-be/mon_data/mon_L3_00/mbm_local_bytes", "3\n"),
    ]);
    assert_eq!(open(&fixture).unwrap().read().unwrap(), [sample(0, Some(120), None, Some(3))]);
}

#[test]
fn a_removed_group_is_an_error_and_a_machine_without_monitoring_has_no_counters() {
    assert!(open(&fixture::intel()).unwrap_err().is_gone());
    let without = fixture::haswell();
    without.add(&[("qosm-be/tasks", "")]);
    assert!(open(&without).unwrap().read().unwrap().is_empty());
}

#[test]
fn traffic_is_a_difference_of_the_same_counter() {
    let earlier = sample(0, Some(5), Some(100), Some(10));
    for (now, total, local) in [
        (sample(0, None, Some(150), Some(10)), Some(50), Some(0)),
        (sample(0, None, Some(99), None), None, None),
        (sample(1, None, Some(150), Some(20)), None, None),
    ] {
        let traffic = now.traffic_since(&earlier);
        assert_eq!(traffic, Traffic { total: total.map(Bytes), local: local.map(Bytes) }, "{now:?}");
    }
}
