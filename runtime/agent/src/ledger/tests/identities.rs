//! Group identities, which have an effect only behind the node's switches: all of them are leases, and go back in an order that the kernel
//! takes.

use std::time::Duration;

use qosm_host::simulated::Kernel;

use super::*;
use crate::restore::{Patience, RESTORED, restore};

const SWITCH: Key = (Target::Node, Knob::GroupIdentity);
const CORE: Key = (Target::Node, Knob::SchedCore);
const OF_POD: Key = (POD, Knob::BvtWarp);
const OF_APP: Key = (APP, Knob::BvtWarp);
const ALL: [(Key, i64); 4] = [(OF_APP, -1), (OF_POD, -1), (SWITCH, 1), (CORE, 0)];
const ONCE: Patience = Patience { retries: 0, pause: Duration::ZERO, slow_writes: Duration::ZERO };

/// A node on which core scheduling is on, with these leases.
fn held(versions: Versions, journal: Option<Journal>) -> Env {
    let mut env = Env::like(&Spec { versions, kernel: Kernel::Alibaba, ..Spec::default() }, journal);
    env.host.simulated_mut().unwrap().set_node_knob(CORE.1, Some(1));
    for (key, value) in ALL {
        env.lease("a", 1, key, n(value));
    }
    let applied = env.apply();
    assert!(applied.refused.is_empty(), "{applied:?}");
    assert_eq!(ALL.map(|(key, _)| env.value(key)), [n(-1), n(-1), n(1), n(0)]);
    env
}

#[test]
fn identities_come_into_force_and_all_of_it_goes_back() {
    for versions in [Versions::V1, Versions::V2] {
        let mut env = held(versions, None);
        for (key, _) in ALL {
            env.ledger.unlease("a", key);
        }
        let applied = env.apply();
        assert!(applied.refused.is_empty(), "{applied:?}");
        assert_eq!(ALL.map(|(key, _)| env.value(key)), [n(0), n(0), n(0), n(1)]);
    }
}

#[test]
fn an_identity_that_another_program_changes_is_drift() {
    let mut env = held(Versions::V2, None);
    env.write(APP_PATH, "cpu.bvt_warp_ns", "2");
    // Held knobs take turns to be read back.
    let seen: Vec<_> = (0..60).flat_map(|_| env.tick().notices).map(|notice| notice.reason).collect();
    assert_eq!(seen, ["KnobDrift"]);
    assert_eq!([env.value(OF_APP), env.value(OF_POD)], [n(2), n(-1)]);
}

#[test]
fn after_a_kill_a_restore_puts_identities_back_before_their_switches() {
    let folder = tempfile::tempdir().unwrap();
    let Env { ledger, mut host, .. } = held(Versions::V2, Some(open_journal(folder.path())));
    drop(ledger);
    for target in [POD, APP] {
        host.detach(target);
    }
    let journal = open_journal(folder.path());
    let rows = restore(&mut host, &journal, &ONCE).unwrap();
    assert!(rows.len() == 4 && rows.iter().all(|row| row.outcome.as_ref() == RESTORED), "{rows:?}");
    // A restore attaches the recorded cgroups to targets of its own.
    for path in [APP_PATH, POD_PATH] {
        let target = host.attached_at(path).unwrap();
        assert_eq!(host.read(target, Knob::BvtWarp).unwrap(), n(0), "{path}");
    }
    assert_eq!([SWITCH, CORE].map(|(node, knob)| host.read(node, knob).unwrap()), [n(0), n(1)]);
    assert!(journal.records().unwrap().is_empty());
}
