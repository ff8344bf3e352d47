//! Knobs of block devices: each device is held by itself, and nothing is held of a removed one.

use qosm_model::block_io::{BlockDevice, DeviceNumber, IoLimits};

use super::*;

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
const SDB: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
const OF_SDA: Key = (POD, Knob::IoMax(SDA));
const OF_SDB: Key = (POD, Knob::IoMax(SDB));

fn disk(number: DeviceNumber, name: &str) -> BlockDevice {
    BlockDevice { number, names: vec![name.to_owned()], partitions: Vec::new(), volume_groups: Vec::new() }
}

fn limits(read_bps: u64) -> Value {
    Value::IoLimits(IoLimits { read_bps: Some(read_bps), ..IoLimits::default() })
}

fn env(journal: Option<Journal>) -> Env {
    let mut env = Env::on(Versions::V2, journal);
    env.host.simulated_mut().unwrap().set_devices(&[disk(SDA, "sda"), disk(SDB, "sdb")]);
    env
}

#[test]
fn each_device_has_leases_and_a_baseline_of_its_own() {
    let mut env = env(None);
    env.write(POD_PATH, "io.max", "8:16 wbps=4096");
    let before = env.value(OF_SDB);
    env.lease("a", 1, OF_SDA, limits(1 << 20));
    env.lease("b", 2, OF_SDA, limits(2 << 20));
    env.lease("a", 1, OF_SDB, limits(3 << 20));
    env.tick();
    assert_eq!([env.value(OF_SDA), env.value(OF_SDB)], [limits(2 << 20), limits(3 << 20)]);
    env.ledger.unlease("b", OF_SDA);
    env.ledger.unlease("a", OF_SDB);
    env.tick();
    assert_eq!([env.value(OF_SDA), env.value(OF_SDB)], [limits(1 << 20), before]);
    // A foreign write to one device does not affect the other.
    env.lease("a", 1, OF_SDB, limits(3 << 20));
    env.tick();
    env.write(POD_PATH, "io.max", "8:0 rbps=8192");
    let seen = env.tick();
    assert_eq!(seen.notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(), ["KnobDrift"]);
    assert_eq!(env.value(OF_SDB), limits(3 << 20));
}

#[test]
fn a_disk_that_is_pulled_out_is_no_drift_and_one_that_comes_back_is_limited_again() {
    let mut env = env(None);
    env.lease("a", 1, OF_SDA, limits(1 << 20));
    env.lease("a", 1, OF_SDB, limits(2 << 20));
    env.tick();
    env.host.simulated_mut().unwrap().set_devices(&[disk(SDA, "sda")]);
    // No file is written when a disk is removed: the agent sees it when the knob is read back in its turn.
    let seen: Vec<Applied> = (0..120).map(|_| env.tick()).collect();
    assert!(seen.iter().flat_map(|seen| &seen.notices).all(|notice| notice.reason != "KnobDrift"), "{seen:?}");
    let refused: Vec<_> = seen.iter().flat_map(|seen| &seen.refused).collect();
    assert!(!refused.is_empty());
    for refused in refused {
        assert!(refused.error.as_ref().unwrap().contains("the node has no device 8:16"), "{refused:?}");
    }
    assert!(!env.ledger.held().contains_key(&OF_SDB));
    assert_eq!(env.value(OF_SDA), limits(1 << 20), "the other one stays limited");
    env.host.simulated_mut().unwrap().set_devices(&[disk(SDA, "sda"), disk(SDB, "sdb")]);
    env.ledger.resume(&[POD]);
    env.tick();
    assert_eq!(env.value(OF_SDB), limits(2 << 20));
    // Released knobs are restored; the removed disk has nothing to restore.
    env.host.simulated_mut().unwrap().set_devices(&[disk(SDA, "sda")]);
    env.ledger.unlease("a", OF_SDA);
    env.ledger.unlease("a", OF_SDB);
    let seen = env.tick();
    assert!(seen.refused.is_empty(), "{seen:?}");
    assert!(env.ledger.held().keys().next().is_none());
    assert_eq!(env.value(OF_SDA), Value::Unset);
}

#[test]
fn a_journal_knows_the_device_and_the_next_ledger_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(Some(open_journal(folder.path())));
    env.write(POD_PATH, "io.max", "8:0 wiops=50");
    let before = env.value(OF_SDA);
    env.lease("a", 1, OF_SDA, limits(1 << 20));
    env.tick();
    let Env { ledger, host, .. } = env;
    drop(ledger);
    let mut env = Env::of(host, Some(open_journal(folder.path())));
    let held = env.ledger.held().get(&OF_SDA).unwrap();
    assert_eq!((held.baseline, held.written), (before, limits(1 << 20)));
    env.ledger.settle();
    env.tick();
    assert_eq!(env.value(OF_SDA), before, "nobody wants it any more");
}
