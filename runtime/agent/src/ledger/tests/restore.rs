use std::time::Duration;

use super::*;
use crate::restore::{ALREADY, GONE, LEFT, Patience, RESTORED, restore};

const QUOTA: Key = (APP, Knob::CfsQuota);
const ONCE: Patience = Patience { retries: 0, pause: Duration::ZERO, slow_writes: Duration::ZERO };

/// What happens between the end of an agent that was killed and the restore.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Written(&'static str),
    Gone,
    MadeAnew,
}

#[test]
fn a_restore_puts_back_what_is_still_ours_and_says_what_became_of_the_rest() {
    for (meanwhile, outcome, reported, quota) in [
        (Meanwhile::Nothing, RESTORED, "max", Some("max 100000")),
        (Meanwhile::Written("max 100000"), ALREADY, "max", Some("max 100000")),
        (Meanwhile::Written("70000 100000"), LEFT, "70000", Some("70000 100000")),
        (Meanwhile::Gone, GONE, "max", None),
        (Meanwhile::MadeAnew, GONE, "max", Some("max 100000")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut env = Env::on(Versions::V2, Some(open_journal(folder.path())));
        env.lease("a", 1, QUOTA, n(200_000));
        env.apply();
        let Env { ledger, mut host, .. } = env;
        drop(ledger);
        for target in [POD, APP] {
            host.detach(target);
        }
        let simulation = host.simulated_mut().unwrap();
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Written(text) => simulation.set_file(APP_PATH, "cpu.max", text).unwrap(),
            Meanwhile::Gone => simulation.remove_cgroup(APP_PATH).unwrap(),
            Meanwhile::MadeAnew => {
                simulation.remove_cgroup(APP_PATH).unwrap();
                host.create(APP_PATH).unwrap();
            }
        }
        let journal = open_journal(folder.path());
        let rows = restore(&mut host, &journal, &ONCE).unwrap();
        let [row] = rows.as_slice() else { panic!("{meanwhile:?}: {rows:?}") };
        assert_eq!((row.cgroup.as_str(), row.outcome.as_ref()), (APP_PATH, outcome), "{meanwhile:?}: {row:?}");
        assert_eq!(row.value.to_string(), reported, "{meanwhile:?}");
        let found = host.simulated_mut().unwrap().read_file(APP_PATH, "cpu.max").ok();
        assert_eq!(found.as_deref().map(str::trim), quota, "{meanwhile:?}");
        assert!(journal.records().unwrap().is_empty(), "{meanwhile:?}");
    }
}
