//! Prepares the needs of stages while other stages run: installs third-party programs while qosm is compiled, and compiles the tests of all
//! crates, the largest part, while stages run that do not need them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::nice;

use super::{Selection, Stage, Tally, Took, inventory, lanes, program};
use crate::interrupt::Interrupt;
use crate::workspace::Workspace;
use crate::{bench, command, modules, rego, setup};

/// Niceness of the compiler while tests run.
const NICE: i32 = 10;
/// Interval of checks for an interrupt.
const POLL: Duration = Duration::from_millis(50);

/// Whether a stage can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All needs are available.
    Ready,
    /// Something is still being installed or compiled.
    NotYet,
    /// A need cannot be installed or compiled; this was printed and counted.
    Never,
}

/// When the tests of a stage are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tests {
    /// Tests that `cargo test` does not run by default: before any stage begins.
    Staged,
    /// Tests that `cargo test` runs by default: in parallel with the first stages.
    Unasked,
}

impl Tests {
    fn of(stage: Stage) -> Self {
        if stage == Stage::Workspace { Self::Unasked } else { Self::Staged }
    }
}

/// State of the stages' needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By stage, whether its needs besides Rust could be installed.
    installed: BTreeMap<Stage, bool>,
    /// Whether these tests compiled.
    compiled: BTreeMap<Tests, bool>,
    /// Failures to install or compile, and differences in the list of tests.
    tally: Tally,
    times: Vec<Took>,
}

impl Needs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this stage can begin.
    pub(super) fn of(&self, stage: Stage) -> Readiness {
        let state = self.state();
        match (state.installed.get(&stage), state.compiled.get(&Tests::of(stage))) {
            (Some(false), _) | (_, Some(false)) => Readiness::Never,
            (Some(true), Some(true)) => Readiness::Ready,
            _ => Readiness::NotYet,
        }
    }

    /// The failures and other findings, and the time of each part.
    pub(super) fn into_counts(self) -> (Tally, Vec<Took>) {
        let mut state = self.state();
        (std::mem::take(&mut state.tally), std::mem::take(&mut state.times))
    }

    /// Waits until a stage can begin, or never will. Returns whether it can.
    ///
    /// # Errors
    ///
    /// If this process is asked to end.
    pub(super) fn wait(&self, stage: Stage, interrupt: &Interrupt) -> Result<bool> {
        loop {
            match self.of(stage) {
                Readiness::Ready => return Ok(true),
                Readiness::Never => return Ok(false),
                Readiness::NotYet => interrupt.sleep_until(Instant::now() + POLL)?,
            }
        }
    }

    /// Installs the stages' needs besides Rust, in a separate thread and in the order in which the stages begin; with `is_whole`, also what only
    /// `make test-all` needs. A stage whose needs cannot be installed counts as failed.
    pub(super) fn install(&self, workspace: &Workspace, wanted: &[Stage], is_whole: bool) {
        let (needs, workspace) = (self.clone(), workspace.clone());
        let stages: Vec<_> = lanes::order().filter(|stage| wanted.contains(stage)).collect();
        thread::spawn(move || {
            let left =
                Left { needs: &needs, what: "the installation of what tests need", stages: &stages, tests: None };
            let mut bundles = None;
            for &stage in &stages {
                let installed = stage.set_up(is_whole, |purposes| setup::install(&workspace, purposes));
                let installed = installed.and_then(|()| {
                    if bundles.is_some() || !stage.purposes().contains(&setup::Purpose::Rego) {
                        return Ok(());
                    }
                    rego::build(&workspace)?;
                    bundles = Some(());
                    Ok(())
                });
                if let Err(error) = &installed {
                    command::heading(&format!("the stage {stage} cannot be set up"));
                    command::tell(error);
                }
                let mut state = needs.state();
                state.tally.failed += u64::from(installed.is_err());
                state.installed.insert(stage, installed.is_ok());
            }
            drop(left);
        });
    }

    /// Builds modules, binaries, and the test targets of the wanted stages; [`Self::compile`] compiles the tests of [`Stage::Workspace`].
    ///
    /// # Errors
    ///
    /// If something does not compile.
    pub(super) fn build(&self, workspace: &Workspace, wanted: &[Stage]) -> Result<()> {
        modules::build(workspace, &modules::Args::default())?;
        command::heading("binaries");
        let mut build = workspace.cargo_for_all("build");
        // The other binaries are those of benches, whose dependencies take minutes.
        let needed: &[&str] = if wanted.contains(&Stage::Bench) { &[] } else { &["qosm", "qosm-policy"] };
        command::run(build.args(needed.iter().flat_map(|name| ["--bin", *name])))?;
        command::heading("tests of the stages");
        let targets: BTreeSet<_> = wanted.iter().flat_map(|stage| stage.targets()).copied().collect();
        program::compile_staged(workspace, &Vec::from_iter(targets))?;
        self.state().compiled.insert(Tests::Staged, true);
        Ok(())
    }

    /// Compiles what `cargo test` runs by default, in a separate thread with low priority. If all tests are compiled, compares the list of
    /// tests with them.
    pub(super) fn compile(&self, workspace: &Workspace, selection: &Selection<'_>, lists: bool, interrupt: &Interrupt) {
        let (needs, workspace, interrupt) = (self.clone(), workspace.clone(), interrupt.clone());
        let beside_opa = !matches!(selection, Selection::Short);
        thread::spawn(move || {
            let left = Left {
                needs: &needs,
                what: "compiling the tests of all crates",
                stages: &[],
                tests: Some(Tests::Unasked),
            };
            // Applies to this thread and its child processes. Without permission the compiler has a higher priority.
            let _ = nice(NICE);
            let begun = Instant::now();
            command::heading("tests of all crates, beside the first stages");
            let compiled = program::compile_unasked(&workspace, &interrupt).and_then(|()| {
                let mut opa = bench::beside_opa(&workspace, "test");
                if beside_opa { command::run_until_asked(opa.arg("--no-run"), &interrupt) } else { Ok(()) }
            });
            if let Err(error) = &compiled {
                command::heading("the tests of all crates do not compile");
                command::tell(error);
            }
            let listed = if lists && compiled.is_ok() { Some(inventory::check(&workspace)) } else { None };
            if let Some(Err(error)) = &listed {
                command::tell(error);
            }
            let mut state = needs.state();
            state.tally.passed += u64::from(matches!(listed, Some(Ok(()))));
            state.tally.failed += u64::from(compiled.is_err()) + u64::from(matches!(listed, Some(Err(_))));
            let what = "compiled beside".to_owned();
            state.times.push(Took { what, took: begun.elapsed(), budget: None });
            state.compiled.insert(Tests::Unasked, compiled.is_ok());
            drop(state);
            drop(left);
        });
    }
}

/// Results that a thread still has to report. If the thread panics, they count as failed, so that no stage waits for them.
struct Left<'a> {
    needs: &'a Needs,
    what: &'static str,
    stages: &'a [Stage],
    tests: Option<Tests>,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let mut state = self.needs.state();
        let missing: Vec<_> = self.stages.iter().filter(|stage| !state.installed.contains_key(stage)).collect();
        let tests = self.tests.filter(|tests| !state.compiled.contains_key(tests));
        if missing.is_empty() && tests.is_none() {
            return;
        }
        command::heading(&format!("{} broke off", self.what));
        state.tally.failed += 1;
        state.installed.extend(missing.into_iter().map(|&stage| (stage, false)));
        state.compiled.extend(tests.map(|tests| (tests, false)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(installed: &[(Stage, bool)], compiled: &[(Tests, bool)]) -> Needs {
        let needs = Needs::default();
        needs.state().installed.extend(installed.iter().copied());
        needs.state().compiled.extend(compiled.iter().copied());
        needs
    }

    #[test]
    fn a_stage_begins_when_its_programs_are_there_and_its_own_tests_are_compiled() {
        use Readiness::{Never, NotYet, Ready};
        let here = (Stage::Kernel, true);
        for (installed, compiled, kernel, workspace) in [
            (&[][..], &[][..], NotYet, NotYet),
            (&[here], &[], NotYet, NotYet),
            (&[here, (Stage::Workspace, true)], &[(Tests::Staged, true)], Ready, NotYet),
            (&[(Stage::Workspace, true)], &[(Tests::Staged, true), (Tests::Unasked, true)], NotYet, Ready),
            (&[(Stage::Kernel, false)], &[(Tests::Staged, true)], Never, NotYet),
            (&[here], &[(Tests::Staged, true), (Tests::Unasked, false)], Ready, Never),
        ] {
            let needs = needs(installed, compiled);
            assert_eq!((needs.of(Stage::Kernel), needs.of(Stage::Workspace)), (kernel, workspace), "{needs:?}");
        }
    }

    #[test]
    fn nobody_waits_for_a_thread_that_broke_off() {
        let needs = needs(&[(Stage::Kernel, true)], &[(Tests::Staged, true)]);
        let stages = [Stage::Kernel, Stage::Cluster];
        drop(Left { needs: &needs, what: "x", stages: &stages, tests: Some(Tests::Unasked) });
        assert_eq!([Stage::Kernel, Stage::Cluster].map(|stage| needs.of(stage)), [Readiness::Ready, Readiness::Never]);
        assert_eq!(needs.of(Stage::Workspace), Readiness::Never);
        assert_eq!(needs.clone().into_counts().0.failed, 1);
        drop(Left { needs: &needs, what: "x", stages: &stages, tests: Some(Tests::Unasked) });
        assert_eq!(needs.into_counts().0.failed, 0, "who said everything has not broken off");
    }
}
