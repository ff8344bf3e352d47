//! Tests that only `make test-all` runs: each behaviour here has a shorter test that `make test` runs.

use std::path::Path;

use super::Stage;

/// Long tests of one stage.
pub(super) struct LeftOut {
    stage: Stage,
    /// Prefixes of their names, for `--skip`.
    pub(super) names: &'static [&'static str],
    /// Why they can be left out, and which tests show the same.
    why: &'static str,
    /// Left out only on a machine with cgroup v1.
    only_on_v1: bool,
}

/// Tests that need several CPUs, NUMA nodes, cpusets, PSI or the cost model of devices, none of which user-mode Linux has. The emulated
/// machine runs only these.
const EMULATED: &[&str] = &[
    "alarms::load_that_rises",
    "alarms::pressure_above",
    "block_io::",
    "cpusets::",
    "locality::",
    "pinning::",
    "a_process_that_is_killed",
    "a_target_without_room",
    "counts_what_a_throttled",
    "pages_on_the_wrong",
    "two_containers_take_turns",
];

/// Tests for a node like one in production.
const PRODUCTION: &[&str] = &["production::", "policies::", "nri::a_container_has"];

/// Tests of a power cut. The second needs another boot of the node, after one in which the first ran last.
pub(super) const POWER_GOES: &str = "production::the_power_goes_while_values_are_held";
pub(super) const POWER_IS_BACK: &str = "production::the_power_is_back_and_values_come_and_go_as_before";

/// Tests that need systemd.
const WITH_SYSTEMD: &[&str] = &["production::"];

const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        stage: Stage::Uml,
        names: &["kills::whatever", "swaps::versions_take_turns"],
        why: "crashes::nothing_is_lost_or_left_behind_after_kill_9 and swaps::a_swap_moves_no_knob show it once; the kernel stage kills at random",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Uml,
        names: &["confinement::"],
        why: "Debian's user-mode Linux has no Landlock: the kernel stage confines the agent",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Uml,
        names: &["bursts::a_throttled"],
        why: "its one CPU has nothing to share, so that relief takes minutes: the kernel stage shows it on several",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Kernel,
        names: &["swaps::versions_take_turns"],
        why: "a thousand ticks; swaps::a_swap_moves_no_knob swaps once",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Kernel,
        names: &[
            "failures::",
            "inputs::",
            "journal::",
            "pauses::",
            "policy_modules::",
            "recording::",
            "rego::",
            "shadows::",
            "swaps::",
        ],
        why: "they are the same on both versions of cgroups, and user-mode Linux runs them on v2, which production has",
        only_on_v1: true,
    },
    LeftOut {
        stage: Stage::Registry,
        names: &["publish::modules_that_are_built_elsewhere"],
        why: "all modules are compiled once more in another folder; publish::the_default_modules publishes them twice",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Registry,
        names: &["wkg::"],
        why: "wkg is compiled for it, for minutes; artefacts:: and the registry's own tests push and pull what lies in a registry as wkg's does",
        only_on_v1: false,
    },
    LeftOut {
        stage: Stage::Cluster,
        names: &[
            "kills::",
            "outages::",
            "nri::of_many_containers",
            "colocation::of_two_controllers",
            "env::the_api_server_restarts",
            "evicted::",
            "reclaimed::a_labelled_namespace",
        ],
        why: "rounds of kill -9, the API server's and the runtime's own time-outs, real minutes between evictions, the chart's set a second time: \
              policies::the_api_server_may_go, nri::a_container_has, colocation::a_batch_pod_waits, reclaimed::batch_runs and the kernel \
              stage's crashes:: show each once, and the eviction policy's own tests the order of evictions",
        only_on_v1: false,
    },
];

/// Whether this machine has cgroup v2 with all controllers.
fn is_on_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Tests of a stage that are left out on this machine.
pub(super) fn of(stage: Stage) -> impl Iterator<Item = &'static str> {
    let here = move |left: &&LeftOut| left.stage == stage && !(left.only_on_v1 && is_on_v2());
    LEFT_OUT.iter().filter(here).flat_map(|left| left.names.iter().copied())
}

/// The only tests that a stage runs; empty if it runs all.
pub(super) fn only(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Vm => EMULATED,
        Stage::Node => PRODUCTION,
        _ => &[],
    }
}

/// Tests that write the node's own settings, which must not change on the machine of the test run.
const OF_THE_NODE: &[&str] = &["block_io::", "node_memory::"];

/// Tests that another stage runs instead of this one, even if they are named.
pub(super) fn elsewhere(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Kernel => OF_THE_NODE,
        Stage::Uml => EMULATED,
        Stage::Cluster => WITH_SYSTEMD,
        Stage::Node => &[POWER_GOES, POWER_IS_BACK],
        _ => &[],
    }
}

/// A line for each kind of test that was left out, for the end of the log.
pub(super) fn lines() -> impl Iterator<Item = String> {
    let tests = LEFT_OUT.iter().map(|left| format!("{}, {}: {}", left.stage, left.names.join(" "), left.why));
    let others = [
        "vm, all that user-mode Linux runs, which is not emulated".to_owned(),
        "workspace, 31 of 32 of OPA's own cases: each compiles a module".to_owned(),
        "workspace, the crate opa-wasm beside the engine: it compiles an engine of its own for minutes; OPA's own cases say what is right"
            .to_owned(),
        "node: systemd, the kubelet and kubectl take ten times as long there; the cluster stage, and of what the kubelet writes itself \
         ledger::tests and tier_protection::, show the same"
            .to_owned(),
        "bench: each bench in its shortest form".to_owned(),
    ];
    tests.chain(others)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_left_out_is_there() {
        let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let left_out = LEFT_OUT.iter().map(|left| (left.stage, left.names));
        for (stage, names) in
            left_out.chain([(Stage::Vm, EMULATED), (Stage::Node, PRODUCTION), (Stage::Uml, OF_THE_NODE)])
        {
            let folders: &[&str] = match stage {
                Stage::Kernel | Stage::Uml | Stage::Vm => &["cli/tests/kernel", "host/tests/kernel"],
                Stage::Registry => &["cli/tests/registry"],
                Stage::Cluster | Stage::Node => &["cli/tests/cluster"],
                Stage::Workspace | Stage::Languages | Stage::Browser | Stage::Bench => panic!("{stage}"),
            };
            for name in names {
                let (module, test) = name.split_once("::").unwrap_or(("main", name));
                let texts =
                    folders.iter().map(|folder| fs::read_to_string(runtime.join(folder).join(format!("{module}.rs"))));
                let is_there = texts.flatten().any(|text| text.contains(&format!("fn {test}")));
                assert!(is_there, "{stage}: {name}");
            }
        }
    }
}
