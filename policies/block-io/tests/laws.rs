//! Properties that hold for all configurations and devices.

use block_io::config::{Block, Cost, Kind, PodConfig, Share, Strategy as Asked};
use block_io::plan::{BATCH, Plan, Source, Value};
use block_io::remarks::Remarks;
use block_io::resolve::{Asker, Node};
use proptest::prelude::*;
use proptest::sample::select;
use qosm_sdk::{IoDevice, IoDeviceInfo, IoLimits, IoVolume, Target};
use serde_json::json;

/// Names of devices, partitions, volume groups and volumes: some exist on some nodes, others on none.
const NAMES: [&str; 8] = ["sda", "/dev/sda", "sdb", "sda1", "mapper/data-logs", "data", "pvc-1", "nothing"];

fn limit() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(2..u64::MAX >> 1)
}

fn share() -> impl Strategy<Value = Share> {
    (limit(), limit(), limit(), limit(), proptest::option::of(1..100_u32)).prop_map(
        |(read_bps, write_bps, read_iops, write_iops, weight)| {
            let iops = |limit: Option<u64>| limit.map(|limit| limit % (1 << 20) + 2);
            let limits = IoLimits { read_bps, write_bps, read_iops: iops(read_iops), write_iops: iops(write_iops) };
            Share { limits, weight }
        },
    )
}

fn blocks() -> impl Strategy<Value = Vec<Block<Share>>> {
    let block = (select(&Kind::ALL[..]), select(&NAMES[..]), share());
    proptest::collection::vec(block.prop_map(|(kind, name, asks)| Block { kind, name: name.into(), asks }), 0..8)
}

fn root() -> impl Strategy<Value = Vec<Block<Cost>>> {
    let block = (select(&Kind::ALL[..2]), select(&NAMES[..]));
    let block = block.prop_map(|(kind, name)| Block { kind, name: name.into(), asks: Cost::default() });
    proptest::collection::vec(block, 0..3)
}

fn devices() -> impl Strategy<Value = Vec<IoDeviceInfo>> {
    proptest::collection::vec((any::<bool>(), any::<bool>()), 0..4).prop_map(|flags| {
        let name = ["sda", "sdb", "dm-0", "sdc"];
        let device = |(minor, (has_group, has_name)): (u32, (bool, bool)), name: &str| IoDeviceInfo {
            device: IoDevice { major: 8, minor },
            names: if has_name { vec![name.into(), format!("mapper/data-{name}")] } else { vec![name.into()] },
            partitions: vec![format!("{name}1")],
            volume_groups: if has_group { vec!["data".into()] } else { vec![] },
        };
        (1..).zip(flags).zip(name).map(|(flags, name)| device(flags, name)).collect()
    })
}

/// Whether the limit `set` is at least as strict as `asked`.
fn holds(set: Option<u64>, asked: Option<u64>) -> bool {
    asked.is_none_or(|asked| set.is_some_and(|set| set <= asked))
}

proptest! {
    #[test]
    fn every_block_that_names_a_device_holds_and_every_other_is_told(
        devices in devices(), be in blocks(), of_pod in blocks(), root in root(),
        volumes in proptest::collection::vec(0..4_u32, 0..3), names_one_volume in any::<bool>(),
    ) {
        let volumes: Vec<_> = volumes
            .into_iter()
            .zip(1..)
            .map(|(minor, number)| IoVolume { pod: 1, name: format!("pvc-{number}"), device: IoDevice { major: 8, minor } })
            .collect();
        let node = Node { devices: &devices, volumes: &volumes };
        let asker = Asker { pod: 1, names_one_volume };
        let pods = [(asker, Source { name: "pod", blocks: &of_pod })];
        let (of_be, of_root) = (Source { name: "be", blocks: &be }, Source { name: "root", blocks: &root });
        let plan = Plan::new(node, of_be, of_root, pods, Remarks::new());
        let limits = |target, device| plan.settings.iter().find_map(|setting| match setting.value {
            Value::Max(of, limits) if of == target && setting.device == device => Some(limits),
            _ => None,
        });
        let counts = |device| plan.settings.iter().any(|set| set.device == device && matches!(set.value, Value::Qos(_)));
        let weight = |target, device| plan.settings.iter().find_map(|setting| match setting.value {
            Value::Weight(of, weight) if of == target && setting.device == device => Some(weight),
            _ => None,
        });
        // Reasons that no longer fit are counted.
        let is_told = |target, why: &str| plan.remarks.get(&Some(target)).is_some_and(|said| {
            let said = said.to_string();
            said.contains(why) || said.ends_with(" more")
        });
        for said in plan.remarks.values() {
            prop_assert!(said.to_string().len() < 2_000);
        }
        for (target, asker, blocks) in [(BATCH, None, &be), (Target::Pod(1), Some(asker), &of_pod)] {
            for block in blocks.iter().filter(|block| block.asks != Share::NONE) {
                match node.resolve(block, asker) {
                    Err(why) => prop_assert!(is_told(target, &why.to_string()), "{block:?}: {why}"),
                    Ok(found) => for found in found {
                        let set = limits(target, found.device).unwrap_or(IoLimits::NONE);
                        let asked = block.asks.limits;
                        prop_assert!(holds(set.read_bps, asked.read_bps) && holds(set.write_bps, asked.write_bps));
                        prop_assert!(holds(set.read_iops, asked.read_iops) && holds(set.write_iops, asked.write_iops));
                        // The kernel refuses weights of a device whose cost does not count.
                        let (set, asked) = (weight(target, found.device), block.asks.weight);
                        if counts(found.device) {
                            prop_assert!(holds(set.map(u64::from), asked.map(u64::from)));
                        } else {
                            prop_assert_eq!(set, None);
                            prop_assert!(asked.is_none() || is_told(target, " is not set: it has an effect only where"));
                        }
                    }
                }
            }
        }
        // There is only one value of each kind, target and device; the session would take the last.
        for (place, one) in plan.settings.iter().enumerate() {
            let same = |other: &&block_io::plan::Setting| other.device == one.device
                && std::mem::discriminant(&other.value) == std::mem::discriminant(&one.value)
                && match (one.value, other.value) {
                    (Value::Max(one, _), Value::Max(other, _)) | (Value::Weight(one, _), Value::Weight(other, _)) => one == other,
                    _ => true,
                };
            prop_assert_eq!(plan.settings[place + 1..].iter().find(same), None);
            prop_assert!(!matches!(one.value, Value::Max(_, IoLimits::NONE)));
        }
    }

    #[test]
    fn whatever_number_is_written_the_kernel_takes_what_is_read(
        bps in any::<i128>().prop_map(|number| json!(i64::try_from(number >> 64).unwrap_or(0))), small in -3..200_i64, unsigned in any::<u64>(),
    ) {
        for number in [bps, json!(small), json!(unsigned), json!(small.to_string())] {
            let io = json!({"readBPS": number, "writeIOPS": number, "ioWeightPercent": number});
            let blocks = vec![json!({"name": "sda", "type": "device", "ioCfg": io})];
            let (read, faults) = PodConfig { blocks }.read();
            let Share { limits, weight } = read[0].asks;
            let (bps, iops) = (limits.read_bps, limits.write_iops);
            prop_assert!(bps.is_none_or(|bps| bps >= 2 && i64::try_from(bps).is_ok()));
            prop_assert!(iops.is_none_or(|iops| iops >= 2 && iops < u64::from(u32::MAX)));
            prop_assert!(weight.is_none_or(|weight| (1..100).contains(&weight)));
            // Every value that is left out is reported.
            let is_told = |field: &str| faults.iter().any(|fault| fault.field.ends_with(field));
            prop_assert!(bps.is_some() || number == json!(0) || is_told("readBPS"), "{}", number);
        }
    }

    #[test]
    fn no_text_stops_it(text in "\\PC{0,60}", name in "\\PC{0,300}") {
        let (asked, _) = Asked::read(&text, &Asked::default());
        prop_assert!(asked.be.is_none_or(|blocks| blocks.is_empty()));
        let block = json!({"name": name, "type": "device", "ioCfg": {"readBPS": 9}});
        let json = json!({"beClass": {"blkioQOS": {"enable": true, "blocks": [block]}}}).to_string();
        let (asked, faults) = Asked::read(&json, &Asked::default());
        let blocks = asked.be.unwrap_or_default();
        prop_assert_eq!(blocks.len() + faults.len(), 1);
        let node = Node { devices: &[], volumes: &[] };
        for block in &blocks {
            prop_assert!(node.resolve(block, None).is_err_and(|why| why.to_string().len() < 4096));
        }
    }
}
