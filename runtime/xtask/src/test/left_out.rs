//! What `make test` leaves to `make test-all`: each behaviour here has a shorter sibling that stays.

use super::Stage;

/// Tests of one stage that take long.
pub(super) struct LeftOut {
    stage: Stage,
    /// The beginnings of their names, as `--skip` takes them.
    pub(super) names: &'static [&'static str],
    /// Why they can be left out, and what shows the same.
    why: &'static str,
}

const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        stage: Stage::Vm,
        names: &[
            "policy_modules::",
            "rego::",
            "shadows::shadows_that_trap",
            "shadows::the_difference",
            "shadows::what_a_shadow",
            "shadows::a_shadow_of",
            "shadows::a_shadow_that",
            "swaps::a_configuration_that",
            "swaps::a_version_that",
            "swaps::the_agents_own_file",
            "swaps::versions_take_turns",
        ],
        why: "modules are compiled all the time, for which an emulated processor takes twenty times as long; \
              swaps::a_swap_moves_no_knob and shadows::a_shadow_never_writes look at the kernel's files and stay",
    },
    LeftOut {
        stage: Stage::Vm,
        names: &["journal::", "inputs::", "failures::", "pauses::", "recording::", "nri::", "confinement::"],
        why: "the state folder, the inputs and the agent's own limits are the same on both versions of cgroups: the kernel stage runs them",
    },
    LeftOut {
        stage: Stage::Vm,
        names: &["kills::whatever"],
        why: "crashes::nothing_is_lost_or_left_behind_after_kill_9 kills on cgroup v2, the kernel stage kills at random",
    },
    LeftOut {
        stage: Stage::Vm,
        names: &[
            "lifecycle::a_start",
            "lifecycle::an_agent_that_is_stopped",
            "lifecycle::only_root",
            "lifecycle::restore_asks",
            "lifecycle::the_",
            "lifecycle::what_is_kept",
            "lifecycle::groups_that_a_killed",
        ],
        why: "lifecycle::an_end_that_is_asked_for_restores_everything stays, the kernel stage runs the others",
    },
    LeftOut {
        stage: Stage::Kernel,
        names: &["swaps::versions_take_turns"],
        why: "a thousand ticks; swaps::a_swap_moves_no_knob swaps once",
    },
    LeftOut {
        stage: Stage::Registry,
        names: &["publish::modules_that_are_built_elsewhere"],
        why: "all modules are compiled once more in another folder; publish::the_default_modules publishes them twice",
    },
    LeftOut {
        stage: Stage::Cluster,
        names: &["kills::", "outages::", "nri::of_many_containers", "colocation::of_two_controllers"],
        why: "rounds of kill -9, the API server's and the runtime's own time-outs: policies::the_api_server_may_go, nri::a_container_has and \
              the kernel stage's crashes:: show each once",
    },
];

/// What is left out of a stage.
pub(super) fn of(stage: Stage) -> impl Iterator<Item = &'static str> {
    LEFT_OUT.iter().filter(move |left| left.stage == stage).flat_map(|left| left.names.iter().copied())
}

/// One line for each kind, for the end of the log.
pub(super) fn lines() -> impl Iterator<Item = String> {
    let tests = LEFT_OUT.iter().map(|left| format!("{}, {}: {}", left.stage, left.names.join(" "), left.why));
    let others = [
        "workspace, seven of eight of OPA's own cases: each compiles a module".to_owned(),
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
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests");
        for left in LEFT_OUT {
            let folder = match left.stage {
                Stage::Kernel | Stage::Vm => "kernel",
                Stage::Registry => "registry",
                Stage::Cluster => "cluster",
                Stage::Workspace | Stage::Languages | Stage::Bench => panic!("{}", left.stage),
            };
            for name in left.names {
                let (module, test) = name.split_once("::").unwrap();
                let text = fs::read_to_string(tests.join(folder).join(format!("{module}.rs"))).unwrap();
                assert!(text.contains(&format!("fn {test}")), "{name}");
            }
        }
    }
}
