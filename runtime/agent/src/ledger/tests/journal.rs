use qosm_model::unit::Micros;

use super::*;
use crate::saved_state::SavedState;

const QUOTA: Key = (APP, Knob::CfsQuota);

fn env(folder: &std::path::Path) -> Env {
    Env::on(Versions::V2, Some(open_journal(folder)))
}

fn fail(env: &Env, is_failing: bool) {
    env.ledger.journal().unwrap().set_failing(is_failing);
}

#[test]
fn nothing_is_written_that_cannot_be_written_down_and_all_of_it_is_once_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    fail(&env, true);
    env.lease("a", 1, QUOTA, n(200_000));
    assert!(env.apply().decisions.is_empty());
    assert_eq!(env.value(QUOTA), Value::Max);
    assert!(env.ledger.journal_error().is_some());
    fail(&env, false);
    assert_eq!(env.apply().decisions.len(), 1);
    assert_eq!(env.value(QUOTA), n(200_000));
    assert!(env.ledger.journal_error().is_none());
}

#[test]
fn a_baseline_comes_back_although_the_journal_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    fail(&env, true);
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(QUOTA), Value::Max);
    assert_eq!(env.ledger.journal().unwrap().records().unwrap().len(), 1, "it could not be deleted");
    fail(&env, false);
    env.apply();
    assert!(env.ledger.journal().unwrap().records().unwrap().is_empty());
}

#[test]
fn a_record_says_what_was_there_and_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    for value in [200_000, 300_000] {
        env.lease("a", 1, QUOTA, n(value));
        env.apply();
    }
    let records = env.ledger.journal().unwrap().records().unwrap();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.baseline, record.previous, record.written), (Value::Max, n(200_000), n(300_000)));
    assert_eq!((record.cgroup.as_str(), record.policy.as_str()), (APP_PATH, "a"));
}

#[test]
fn what_a_module_saved_is_kept_until_the_journal_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    let saved = |byte| SavedState { bytes: vec![byte], at: Some(Micros(u64::from(byte))) };
    env.ledger.save_state("a".to_owned(), saved(1));
    env.ledger.save_state("a".to_owned(), saved(2));
    assert_eq!(env.ledger.saved_state("a"), saved(2));
    fail(&env, true);
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    fail(&env, false);
    env.apply();
    assert_eq!(env.ledger.journal().unwrap().state("a").unwrap(), saved(2));
    assert_eq!(env.ledger.sizes()[6], ("unsaved", 0));
}

#[test]
fn paused_cgroups_are_written_down_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    let pause = crate::pause::Pause { until: None, source: crate::pause::PauseSource::Operator };
    for (asked, expected) in [(Some(pause), 1), (None, 0)] {
        env.pods.set_operator_pause("default/web", asked);
        env.pods.update_pauses(Timestamp(0));
        let Env { ledger, host, pods, .. } = &mut env;
        ledger.note_pauses(host, pods);
        assert_eq!(env.ledger.journal().unwrap().paused_cgroups().unwrap().len(), expected);
    }
}
