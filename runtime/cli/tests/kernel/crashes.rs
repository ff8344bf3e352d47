//! `kill -9` at any moment: the next start or `qosm restore` restores every knob.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node};
use crate::waiting::wait_until;

const ROUNDS: u64 = 10;

/// Reproducible pseudo-random numbers (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn nothing_is_lost_or_left_behind_after_kill_9() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let mut dice = Dice(0x5eed_0001);
    let mut moved = 0;
    for round in 0..ROUNDS {
        // Half of the agents are killed while they start, half while the quota changes.
        let agent = Agent::spawn(&node, &[("--tick-millis", "100")]);
        let is_moving = round % 2 == 1;
        if is_moving {
            wait_until("a raise", || node.cgroups.quota(APP) > BASE);
        }
        let delay = dice.below(600);
        sleep(Duration::from_millis(delay));
        agent.kill();
        let left = node.cgroups.knobs();
        moved += u64::from(left != before);

        let way = if round % 4 < 2 { "restore" } else { "a new agent that ends in order" };
        if round % 4 < 2 {
            let (report, good) = node.restore(&[]);
            assert!(good, "round {round}: {report}");
        } else {
            Agent::start(&node).terminate();
        }
        assert_eq!(node.cgroups.knobs(), before, "round {round}, killed after {delay} ms, then {way}");
        let (report, good) = node.restore(&["--dry-run"]);
        assert_eq!(
            (report.as_str(), good),
            ("nothing to restore\n", true),
            "round {round}, killed after {delay} ms, then {way}"
        );
    }
    assert!(moved >= ROUNDS / 2, "only {moved} of {ROUNDS} kills left something to put back");
}

#[test]
fn a_group_that_went_with_the_crash_is_no_trouble() {
    let mut node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    agent.kill();
    // The container restarts in a cgroup with the same name, which qosm has never changed.
    node.cgroups.calm();
    node.cgroups.remove(APP);
    node.cgroups.make(APP);
    node.cgroups.set_quota(APP, BASE);
    let (report, good) = node.restore(&[]);
    assert!(good && report.contains("gone"), "{report}");
    assert_eq!(node.cgroups.knobs(), before, "{report}");
}
