//! Runs stages in parallel, in three lanes: most stages wait more than they compute.
//!
//! Each stage is a separate process whose output goes to a file, which is printed as a whole when the stage ends.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::needs::{Needs, Readiness};
use super::{Args, Report, Run, STAGES, Stage, Tally, Took};
use crate::command;
use crate::interrupt::Interrupt;
use crate::workspace::Profile;

/// Stages of one lane cannot run in parallel: registries and cluster share a folder. The longest lane determines the time of the run.
/// Stages that load the CPUs, kernel tests and emulation, run while the first lane waits for registries, and not in parallel with the
/// cluster.
const LANES: [&[Stage]; 3] = [
    &[Stage::Registry, Stage::Cluster, Stage::Bench],
    &[Stage::Kernel, Stage::Workspace, Stage::Languages, Stage::Browser],
    &[Stage::Vm, Stage::Uml, Stage::Node],
];

/// Time for a stage to clean up after it was asked to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Interval of reports on running stages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// All stages, in the order in which they begin.
pub(super) fn order() -> impl Iterator<Item = Stage> {
    let longest = LANES.iter().map(|lane| lane.len()).max().unwrap_or(0);
    (0..longest).flat_map(|place| LANES.iter().filter_map(move |lane| lane.get(place).copied()))
}

/// The wanted stages by lane, without empty lanes.
pub(super) fn of(wants: impl Fn(Stage) -> bool) -> Vec<Vec<Stage>> {
    let lanes = LANES.map(|lane| lane.iter().copied().filter(|&stage| wants(stage)).collect::<Vec<_>>());
    lanes.into_iter().filter(|lane| !lane.is_empty()).collect()
}

/// Runs the lanes in parallel, each to its end even if stages fail.
///
/// # Errors
///
/// If a stage cannot be started, or this process is asked to end; all stages have ended then.
pub(super) fn run(
    run: &Run<'_>,
    args: &Args,
    lanes: Vec<Vec<Stage>>,
    needs: &Needs,
    report: &mut Report,
) -> Result<()> {
    let folder = run.workspace.target().join(STAGES);
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let start = |stage: Stage| -> Result<Running> {
        let mut xtask = Command::new(&run.xtask);
        xtask.args(["stage", &format!("{stage}")]);
        xtask.args(args.filter.iter().flat_map(|text| ["--filter", text])).args(args.all.then_some("--all"));
        xtask.args((run.workspace.profile() == Profile::Release).then_some("--release"));
        Ok(Running { limit: stage.limit(args.all), ..Running::start(xtask, &folder, stage)? })
    };
    beside_each_other(lanes, start, |stage| needs.of(stage), &run.interrupt, report)
}

fn beside_each_other(
    lanes: Vec<Vec<Stage>>,
    start: impl Fn(Stage) -> Result<Running>,
    needs: impl Fn(Stage) -> Readiness,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let mut lanes: Vec<Lane> = lanes.into_iter().map(|stages| Lane { waiting: stages.into(), running: None }).collect();
    let (mut result, mut is_over, mut reported) = (Ok(()), false, Instant::now());
    loop {
        for lane in &mut lanes {
            if let Some((stage, status)) = lane.ended() {
                stage.report(status, report);
            }
            if lane.running.is_none() && !is_over && !interrupt.asked() {
                let started = lane.next(&needs).map(&start);
                match started.transpose() {
                    Ok(started) => lane.running = started,
                    Err(error) => (result, is_over) = (Err(error), true),
                }
            }
        }
        let is_waited_for = !is_over && !interrupt.asked() && lanes.iter().any(|lane| !lane.waiting.is_empty());
        if !is_waited_for && lanes.iter().all(|lane| lane.running.is_none()) {
            break;
        }
        if reported.elapsed() >= PROGRESS_INTERVAL {
            lanes.iter().for_each(Lane::progress);
            reported = Instant::now();
        }
        let mut running: Vec<_> = lanes.iter_mut().filter_map(|lane| lane.running.as_mut()).collect();
        if is_over || interrupt.asked() {
            running.iter_mut().for_each(|stage| stage.stop());
        }
        running.iter_mut().for_each(|stage| stage.bound());
        sleep(Duration::from_millis(50));
    }
    if interrupt.asked() {
        bail!("interrupted");
    }
    result
}

struct Lane {
    waiting: VecDeque<Stage>,
    running: Option<Running>,
}

impl Lane {
    /// The next stage that can begin; stages that never can are dropped.
    fn next(&mut self, needs: impl Fn(Stage) -> Readiness) -> Option<Stage> {
        self.waiting.retain(|&stage| needs(stage) != Readiness::Never);
        let place = self.waiting.iter().position(|&stage| needs(stage) == Readiness::Ready)?;
        self.waiting.remove(place)
    }

    fn progress(&self) {
        match (&self.running, self.waiting.front()) {
            (Some(stage), _) => stage.progress(),
            (None, Some(stage)) => println!("    {stage}: waits until what it needs is installed and compiled"),
            (None, None) => {}
        }
    }

    /// The stage that has ended, with its exit status, which is `None` if the process cannot be waited for; such a stage has failed.
    fn ended(&mut self) -> Option<(Running, Option<ExitStatus>)> {
        let status = match self.running.as_mut()?.child.try_wait() {
            Ok(None) => return None,
            Ok(status) => status,
            Err(_) => None,
        };
        Some((self.running.take()?, status))
    }
}

/// A running stage.
struct Running {
    stage: Stage,
    child: Child,
    /// File of the stage's output.
    log: PathBuf,
    /// File of the stage's counts, once it has ended.
    tally: PathBuf,
    begun: Instant,
    was_stopped: bool,
    /// Time limit after which the stage hangs.
    limit: Duration,
    /// Number of requests to end after the limit.
    overdue: u32,
}

impl Running {
    /// Starts a program that runs the stage; `--tally` names the file for its counts.
    fn start(mut program: Command, folder: &Path, stage: Stage) -> Result<Self> {
        let (log, tally) = (folder.join(format!("{stage}.log")), folder.join(format!("{stage}.json")));
        // Counts of an earlier run would hide a crash of this one.
        let _ = fs::remove_file(&tally);
        let output = File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        let errors = output.try_clone().context("a log cannot be opened twice")?;
        program.arg("--tally").arg(&tally).stdin(Stdio::null());
        let child = program.stdout(output).stderr(errors).spawn();
        let child = child.with_context(|| format!("the stage {stage} cannot be started"))?;
        command::heading(&format!("{stage} begins; its output: {}", log.display()));
        Ok(Self {
            stage,
            child,
            log,
            tally,
            begun: Instant::now(),
            was_stopped: false,
            limit: stage.limit(false),
            overdue: 0,
        })
    }

    /// Asks a stage to end, once, if it cleans up then; other stages run to their end.
    fn stop(&mut self) {
        let cleans_up = matches!(self.stage, Stage::Registry | Stage::Cluster | Stage::Uml | Stage::Vm);
        if cleans_up && !self.was_stopped {
            self.was_stopped = true;
            // The stage may have exited at this very moment.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Ends a stage that hangs: asks it first, and kills it if it does not react. It counts as failed, and the others continue.
    fn bound(&mut self) {
        let limit = self.limit + PATIENCE * self.overdue;
        if self.begun.elapsed() < limit {
            return;
        }
        let (signal, how) = if self.overdue == 0 { (Signal::TERM, "is ended") } else { (Signal::KILL, "is killed") };
        command::heading(&format!("{} {how}: it has not come to its end within {} s", self.stage, limit.as_secs()));
        self.overdue += 1;
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn progress(&self) {
        let log = File::open(&self.log).map(BufReader::new);
        let lines = log.into_iter().flat_map(|log| log.split(b'\n').map_while(Result::ok));
        let (ended, last) = lines.fold((0, String::new()), |(ended, last), line| {
            let line = String::from_utf8_lossy(&line);
            match ended_test(&line) {
                Some(test) => (ended + 1, format!(", the last {test}")),
                None => (ended, last),
            }
        });
        println!("    {}: {} s, {ended} tests have ended{last}", self.stage, self.begun.elapsed().as_secs());
    }

    /// Prints the output of the ended stage, and adds its counts; a stopped stage is not counted.
    fn report(self, status: Option<ExitStatus>, report: &mut Report) {
        let took = self.begun.elapsed();
        if self.was_stopped {
            command::heading(&format!("{} was stopped after {} s", self.stage, took.as_secs()));
            report.times.push(Took { what: format!("{}, stopped", self.stage), took, budget: None });
            return;
        }
        command::heading(&format!("{} ended after {} s; its output:", self.stage, took.as_secs()));
        let printed = File::open(&self.log).and_then(|mut log| std::io::copy(&mut log, &mut std::io::stdout()));
        if let Err(error) = printed {
            println!("    {} cannot be read: {error}", self.log.display());
        }
        let counted = fs::read(&self.tally).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut tally: Tally = counted.unwrap_or_default();
        if tally.is_good() && !status.is_some_and(|status| status.success()) {
            // The stage ended before it wrote its counts.
            tally.failed += 1;
        }
        report.times.push(Took { what: self.stage.to_string(), took, budget: Some(self.stage.budget()) });
        report.tally.add(tally);
    }
}

/// The name of the test whose end libtest reports in this line.
fn ended_test(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    matches!(outcome.trim_end(), "ok" | "FAILED").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_stands_in_one_lane() {
        use clap::ValueEnum as _;
        for stage in Stage::value_variants() {
            let lanes = LANES.iter().filter(|lane| lane.contains(stage)).count();
            assert_eq!(lanes, 1, "{stage}");
        }
        let all: Vec<_> = order().collect();
        assert_eq!(all.len(), Stage::value_variants().len());
        assert_eq!(all[..4], [Stage::Registry, Stage::Kernel, Stage::Vm, Stage::Cluster]);
    }

    #[test]
    fn lanes_without_a_wanted_stage_are_left_out() {
        assert_eq!(of(|stage| stage == Stage::Vm), [[Stage::Vm]]);
        assert_eq!(of(|stage| matches!(stage, Stage::Registry | Stage::Kernel)), [[Stage::Registry], [Stage::Kernel]]);
    }

    /// A running stage of a lane that is a shell script, which writes the counts.
    fn running(folder: &Path, stage: Stage, script: &str) -> Running {
        let mut shell = Command::new("sh");
        // `$1` is the file for the counts; `$0` is `--tally`.
        shell.args(["-c", script]);
        Running::start(shell, folder, stage).unwrap()
    }

    const GOOD: &str = r#"echo '{"passed":3,"failed":0,"ignored":0,"not_run":1,"failures":[],"slow":[]}' >$1"#;
    const BAD: &str = r#"echo '{"passed":3,"failed":2,"ignored":0,"not_run":1,"failures":[],"slow":[]}' >$1; exit 1"#;

    #[test]
    fn a_stage_counts_by_its_tally_and_fails_by_its_status() {
        for (script, failed) in [(GOOD, 0), (BAD, 2), (&format!("{GOOD}; exit 1"), 1), ("kill -9 $$", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let mut stage = running(folder.path(), Stage::Vm, script);
            let status = stage.child.wait().unwrap();
            let mut report = Report::default();
            stage.report(Some(status), &mut report);
            assert_eq!(report.tally.failed, failed, "{script}");
        }
    }

    /// Runs these scripts as stages. Returns the names of those that ended, and the counts.
    fn play(lanes: &[&[(Stage, &str)]]) -> (Vec<String>, Tally) {
        play_with(lanes, |_| Readiness::Ready)
    }

    fn play_with(lanes: &[&[(Stage, &str)]], needs: impl Fn(Stage) -> Readiness) -> (Vec<String>, Tally) {
        let folder = tempfile::tempdir().unwrap();
        let scripts: Vec<_> = lanes.iter().copied().flatten().copied().collect();
        let script = |stage| scripts.iter().find(|(of, _)| *of == stage).unwrap().1;
        let start = |stage| Ok(running(folder.path(), stage, script(stage)));
        let stages = lanes.iter().map(|lane| lane.iter().map(|(stage, _)| *stage).collect()).collect();
        let mut report = Report::default();
        beside_each_other(stages, start, needs, &Interrupt::default(), &mut report).unwrap();
        (report.times.into_iter().map(|took| took.what).collect(), report.tally)
    }

    #[test]
    fn lanes_run_beside_each_other_and_their_counts_add_up() {
        // Each script waits until the other has begun.
        let wait = |mine: &str, other: &str| {
            format!("d=$(dirname $1); touch $d/{mine}; while ! [ -e $d/{other} ]; do sleep 0.01; done; {GOOD}")
        };
        let (workspace, kernel) = (wait("a", "b"), wait("b", "a"));
        let first: &[_] = &[(Stage::Workspace, workspace.as_str()), (Stage::Registry, GOOD)];
        let (ended, tally) = play(&[first, &[(Stage::Kernel, &kernel)]]);
        assert_eq!((ended.len(), tally.passed, tally.failed, tally.not_run), (3, 9, 0, 3));
    }

    #[test]
    fn a_stage_that_hangs_is_ended_and_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        for script in ["exec sleep 600", "trap '' TERM; while :; do sleep 1; done"] {
            let mut stage = running(folder.path(), Stage::Uml, script);
            stage.limit = Duration::ZERO;
            stage.bound();
            stage.begun = Instant::now().checked_sub(PATIENCE).unwrap();
            stage.bound();
            let status = stage.child.wait().unwrap();
            let mut report = Report::default();
            stage.report(Some(status), &mut report);
            assert_eq!(report.tally.failed, 1, "{script}");
        }
    }

    #[test]
    fn a_failed_stage_ends_no_other() {
        let failing: &[_] = &[(Stage::Workspace, BAD), (Stage::Registry, GOOD)];
        let (ended, tally) = play(&[failing, &[(Stage::Vm, GOOD)]]);
        assert_eq!(ended.len(), 3, "{ended:?}");
        assert_eq!((tally.passed, tally.failed), (9, 2));
    }

    #[test]
    fn a_stage_waits_for_what_it_needs_and_one_that_never_has_it_is_left_out() {
        let asked = std::cell::Cell::new(0);
        let needs = |stage| match stage {
            Stage::Workspace if asked.replace(asked.get() + 1) < 3 => Readiness::NotYet,
            Stage::Registry => Readiness::Never,
            _ => Readiness::Ready,
        };
        let lane: &[_] = &[(Stage::Registry, BAD), (Stage::Workspace, GOOD), (Stage::Languages, GOOD)];
        let (ended, tally) = play_with(&[lane], needs);
        assert_eq!(
            (ended.as_slice(), tally.passed, tally.failed),
            (&["languages".into(), "workspace".into()][..], 6, 0)
        );
    }

    #[test]
    fn only_ended_tests_are_progress() {
        assert_eq!(ended_test("test swaps::a_swap ... ok"), Some("swaps::a_swap"));
        assert_eq!(ended_test("test swaps::a_swap ... "), None);
        assert_eq!(ended_test("test result: ok. 1 passed"), None);
    }
}
