use super::super::fixture::{self, Fixture};
use super::*;

fn info(fixture: &Fixture, vendor: Vendor) -> Info {
    Info::read(&fixture.root, "/r", vendor, MountOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn part(start: u8, end: u8) -> PercentRange {
    PercentRange::new(start, end).unwrap()
}

#[test]
fn every_topology_gives_schemata_that_fit_it() {
    use Vendor::{Amd, Intel};
    for (name, fixture, vendor, closids, l3, l2, mb) in [
        ("intel", fixture::intel(), Intel, Some(8), "L3:0=f;1=f\n", "", "MB:0=40;1=40\n"),
        (
            "20 ways",
            fixture::intel_20_ways(),
            Intel,
            Some(8),
            "L3:0=3f;1=3f;2=3f;3=3f\n",
            "",
            "MB:0=40;1=40;2=40;3=40\n",
        ),
        ("haswell", fixture::haswell(), Intel, Some(4), "L3:0=3f;1=3f\n", "", ""),
        ("amd", fixture::amd(), Amd, Some(16), "L3:0=1f;8=1f\n", "", "MB:0=56;8=56\n"),
        ("cdp", fixture::cdp(), Intel, Some(8), "L3CODE:0=f;1=f\nL3DATA:0=f;1=f\n", "", ""),
        ("l2", fixture::l2_only(), Intel, Some(16), "", "L2:0=7;1=7;2=7\n", ""),
        ("mb", fixture::mb_only(), Intel, Some(8), "", "", "MB:0=40\n"),
        ("none", fixture::monitoring_only(), Intel, None, "", "", ""),
    ] {
        let info = info(&fixture, vendor);
        assert_eq!(info.closids(), closids, "{name}");
        let ways = |level| info.ways(level, None, part(0, 30), Shareable::Use).to_string();
        assert_eq!([ways(CacheLevel::L3), ways(CacheLevel::L2)], [l3, l2], "{name}");
        let share = info.share(BandwidthResource::Memory, None, Percent::new(35).unwrap(), None).unwrap();
        assert_eq!(share.to_string(), mb, "{name}");
        assert_eq!(info.accepted(&share), share, "{name}");
    }
}

#[test]
fn reads_the_fields_of_a_common_machine() {
    let info = info(&fixture::intel(), Vendor::Intel);
    let l3 = &info.caches[&CacheResource::L3];
    assert_eq!(
        *l3,
        CacheInfo {
            num_closids: 16,
            cbm_mask: Mask::from_bits(0x7ff),
            min_cbm_bits: 1,
            shareable_bits: Mask::from_bits(0x600),
            sparse_masks: false,
            ids: vec![CacheId(0), CacheId(1)],
        }
    );
    let mb = &info.bandwidths[&BandwidthResource::Memory];
    assert_eq!((mb.min_bandwidth, mb.bandwidth_gran, mb.delay_linear), (10, 10, true));
    assert_eq!((mb.unit, mb.maximum), (BandwidthUnit::Percent, Bandwidth(100)));
    assert_eq!((mb.thread_throttle_mode, mb.ids.len()), (Some(ThreadThrottleMode::Max), 2));
    assert_eq!(
        info.monitoring,
        Some(MonitoringInfo {
            num_rmids: 176,
            llc_occupancy: true,
            mbm_total: true,
            mbm_local: true,
            max_threshold_occupancy: Some(Bytes(65_536)),
        })
    );
    let upper = l3.mask(part(50, 100), Shareable::Use);
    assert_eq!(info.shared_with_hardware(CacheResource::L3, upper).to_string(), "600");
    let avoiding = l3.mask(part(50, 100), Shareable::Avoid);
    assert_eq!(avoiding.to_string(), "1c0");
    assert!(info.shared_with_hardware(CacheResource::L3, avoiding).is_empty());
}

#[test]
fn amd_has_sparse_masks_and_slow_memory() {
    let info = info(&fixture::amd(), Vendor::Amd);
    assert!(info.caches[&CacheResource::L3].sparse_masks);
    let slow = &info.bandwidths[&BandwidthResource::SlowMemory];
    assert_eq!((slow.unit, slow.maximum), (BandwidthUnit::EighthsOfGigabyte, Bandwidth(2048)));
    assert_eq!((slow.thread_throttle_mode, slow.ids.as_slice()), (None, [CacheId(0), CacheId(8)].as_slice()));
    let all = info.share(BandwidthResource::SlowMemory, Some(CacheId(8)), Percent::ALL, None).unwrap();
    assert_eq!(all.to_string(), "SMBA:8=2048\n");
}

#[test]
fn a_single_cache_can_be_named() {
    let info = info(&fixture::intel(), Vendor::Intel);
    let mut wanted = info.ways(CacheLevel::L3, None, part(20, 80), Shareable::Use);
    wanted.merge(&info.ways(CacheLevel::L3, Some(CacheId(0)), part(20, 30), Shareable::Use));
    assert_eq!(wanted.to_string(), "L3:0=8;1=1f8\n");
}

#[test]
fn megabytes_are_for_memory_and_only_where_mounted_so() {
    let options = MountOptions { mba_mbps: true, ..MountOptions::default() };
    let fixture = fixture::intel();
    fixture.add(&[("schemata", "MB:0=4294967295;1=4294967295\nL3:0=7ff;1=7ff\n")]);
    let info = Info::read(&fixture.root, "/r", Vendor::Intel, options).unwrap();
    let mb = &info.bandwidths[&BandwidthResource::Memory];
    assert_eq!((mb.unit, mb.maximum), (BandwidthUnit::MegabytesPerSecond, Bandwidth(u32::MAX)));
    let share = |full| info.share(BandwidthResource::Memory, None, Percent::new(10).unwrap(), full);
    assert_eq!(share(Some(Bandwidth(40_005))).unwrap().to_string(), "MB:0=4000;1=4000\n");
    assert!(matches!(share(None), Err(ResctrlError::FullBandwidth { .. })));
}

#[test]
fn names_the_file_that_is_wrong() {
    for (path, text, expected) in [
        ("info/L3/cbm_mask", "70f\n", "/r/info/L3/cbm_mask does not hold a mask without holes: `70f`"),
        ("info/L3/cbm_mask", "7fe\n", "/r/info/L3/cbm_mask does not hold a mask without holes: `7fe`"),
        ("info/L3/num_closids", "many\n", "/r/info/L3/num_closids does not hold a whole number: `many`"),
        ("info/L3/num_closids", "4294967296\n", "/r/info/L3/num_closids does not hold a whole number: `4294967296`"),
        ("info/L3/sparse_masks", "2\n", "/r/info/L3/sparse_masks does not hold 0 or 1: `2`"),
        ("info/MB/delay_linear", "\n", "/r/info/MB/delay_linear does not hold 0 or 1: ``"),
        ("schemata", "L3\n", "/r/schemata cannot be understood"),
    ] {
        let fixture = fixture::intel();
        fixture.add(&[(path, text)]);
        let error = Info::read(&fixture.root, "/r", Vendor::Intel, MountOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let fixture = fixture::intel();
    fixture.root.remove_file("info/MB/min_bandwidth").unwrap();
    let error = Info::read(&fixture.root, "/r", Vendor::Intel, MountOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /r/info/MB/min_bandwidth");
}
