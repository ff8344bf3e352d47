//! The kernel tests on cgroup v2: in user-mode Linux, and those for which it lacks something in an emulated machine.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::guest::{self, Console};
use super::program::{TestProgram, staged};
use super::{KERNEL, Run, Selection, Stage, Tally};
use crate::vm::{self, Share};
use crate::{command, rego};

/// Emulation is slow, and slower on a busy machine; a hang takes longer still.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Runs all tests in one boot. The guest sees the programs, the agent and the modules, and no other files of this machine.
///
/// # Errors
///
/// If the tests do not compile, or the machine does not boot or goes down before they have ended.
pub(super) fn run(run: &Run<'_>, stage: Stage, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    command::heading("building the kernel tests");
    let tests = staged(run.workspace, KERNEL)?;
    command::heading(match stage {
        Stage::Uml => "kernel tests in user-mode Linux with cgroup v2",
        _ => "kernel tests in an emulated machine with cgroup v2 and two NUMA nodes",
    });
    let mut files = vec![
        Share { host: run.workspace.binary(), guest: "/bin/qosm".into() },
        Share { host: run.workspace.modules(), guest: "/policies".into() },
        Share { host: rego::bundles(run.workspace), guest: "/bundles".into() },
    ];
    files.extend(tests.iter().map(|test| Share { host: test.program.clone(), guest: guest_program(test).into() }));
    let mut console = Console::new(stage, tally);
    let each = |line: &str| console.line(line);
    let script = script(&tests, stage, selection);
    let code = match stage {
        Stage::Uml => vm::script_in_user_mode(run.workspace, &files, &script, LIMIT, &run.interrupt, each),
        _ => vm::script_in_vm(run.workspace, &files, &script, LIMIT, &run.interrupt, each),
    };
    let unended = console.end();
    match code {
        Ok(code) => ensure!(code == 0 || unended || console.has_failures(), "the guest's script ended with {code}"),
        Err(error) if unended => command::tell(&error),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn guest_program(test: &TestProgram) -> String {
    format!("/bin/{KERNEL}-{}", test.package)
}

/// `QOSM_TEST_VM` tells the tests that the guest provides all that they need, so that a missing feature is a failure here. An emulated
/// machine on a busy one takes a hundred times as long to compile, and counts all of it as its own CPU time. The number of rounds of
/// `kill -9` is passed on.
fn script(tests: &[TestProgram], stage: Stage, selection: &Selection<'_>) -> String {
    let mut script =
        "export QOSM_BIN=/bin/qosm QOSM_MODULES=/policies QOSM_BUNDLES=/bundles QOSM_DISK=/disk QOSM_TEST_VM=1 \
         QOSM_COMPILER_SECONDS=600 RUST_BACKTRACE=1\n"
            .to_owned();
    for (name, value) in ["QOSM_KILL_ROUNDS", "QOSM_KILL_SEED"].map(|name| (name, std::env::var(name))) {
        // A shell evaluates it, so accept only a number.
        if let Some(number) = value.ok().and_then(|text| text.parse::<u64>().ok()) {
            script += &format!("export {name}={number}\n");
        }
    }
    for test in tests {
        script += &guest::lines(stage, selection, &test.name(), &guest_program(test));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::super::tally::Failure;
    use super::*;

    #[test]
    fn the_guest_runs_every_program_even_after_a_failure() {
        let tests = ["one", "two"].map(TestProgram::fake);
        let all = script(&tests, Stage::Vm, &Selection::All(Some("it's")));
        assert!(all.contains("if /bin/kernel-one --test-threads=1 'its'; then"), "{all}");
        assert!(all.contains("if /bin/kernel-two"), "{all}");
        let failure =
            Failure { stage: Stage::Vm, program: "two kernel".into(), test: "a::b".into(), output: String::new() };
        let again = script(&tests, Stage::Vm, &Selection::Again(&[failure]));
        assert!(again.contains("if /bin/kernel-two --test-threads=1 '--exact' 'a::b'; then"), "{again}");
        assert!(!again.contains("kernel-one"), "{again}");
    }
}
