//! The node's own settings are held as knobs of cgroups are.

use std::time::Duration;

use super::*;
use crate::restore::{Patience, RESTORED, restore};

const SCALE: Key = (Target::Node, Knob::WatermarkScaleFactor);
const FREE: Key = (Target::Node, Knob::MinFreeKbytes);
const ONCE: Patience = Patience { retries: 0, pause: Duration::ZERO, slow_writes: Duration::ZERO };

#[test]
fn the_higher_priority_counts_and_the_baseline_comes_back() {
    let mut env = Env::new();
    let before = [env.value(SCALE), env.value(FREE)];
    env.lease("a", 1, SCALE, n(100));
    env.lease("b", 2, SCALE, n(150));
    env.lease("a", 1, FREE, n(80_000));
    env.apply();
    assert_eq!([env.value(SCALE), env.value(FREE)], [n(150), n(80_000)]);
    let shown = env.with(|ledger, host, _| ledger.read_node_knobs(host));
    let scale = shown.iter().find(|sample| sample.knob == SCALE.1).unwrap();
    assert_eq!((scale.value, scale.baseline), (150, 10));
    env.ledger.unlease("b", SCALE);
    env.apply();
    assert_eq!(env.value(SCALE), n(100));
    env.ledger.unlease("a", SCALE);
    env.ledger.unlease("a", FREE);
    env.apply();
    assert_eq!([env.value(SCALE), env.value(FREE)], before);
}

#[test]
fn what_another_program_writes_is_seen_at_the_next_tick_and_left_alone() {
    let mut env = Env::new();
    env.lease("a", 1, SCALE, n(150));
    env.tick();
    env.host.simulated_mut().unwrap().set_node_knob(SCALE.1, Some(200));
    let seen = env.tick();
    let [notice] = seen.notices.as_slice() else { panic!("{seen:?}") };
    assert_eq!((notice.pod.as_str(), notice.id, notice.reason), ("node", None, "KnobDrift"));
    env.tick();
    assert_eq!(env.value(SCALE), n(200));
}

#[test]
fn after_a_kill_the_next_ledger_goes_on_and_a_restore_puts_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = Env::on(Versions::V2, Some(open_journal(folder.path())));
    env.lease("a", 1, SCALE, n(150));
    env.apply();
    let Env { ledger, host, .. } = env;
    drop(ledger);

    let mut env = Env::of(host, Some(open_journal(folder.path())));
    let held = env.ledger.held().get(&SCALE).unwrap();
    assert_eq!((held.baseline, held.written), (n(10), n(150)));
    env.tick();
    assert_eq!(env.value(SCALE), n(150));
    let Env { ledger, mut host, .. } = env;
    drop(ledger);

    let journal = open_journal(folder.path());
    let rows = restore(&mut host, &journal, &ONCE).unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.cgroup.as_str(), row.outcome.as_ref()), ("/", RESTORED), "{row:?}");
    assert_eq!(host.read(SCALE.0, SCALE.1).unwrap(), n(10));
    assert!(journal.records().unwrap().is_empty());
}

#[test]
fn what_this_kernel_lacks_is_refused_by_name_and_the_rest_is_set() {
    let mut env = Env::new();
    env.lease("a", 1, (Target::Node, Knob::MemcgReaper), n(1));
    env.lease("a", 1, SCALE, n(150));
    let applied = env.apply();
    let [refused] = applied.refused.as_slice() else { panic!("{applied:?}") };
    assert_eq!((refused.level.as_str(), refused.support.as_str()), ("node", "unavailable"));
    assert!(refused.error.as_ref().unwrap().contains("/sys/kernel/mm/memcg_reaper/reap_background"), "{refused:?}");
    assert_eq!(env.value(SCALE), n(150));
}
