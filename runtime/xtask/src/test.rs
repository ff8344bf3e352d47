//! The whole test run: modules, binaries, the workspace's tests, and the tests that need a kernel (on this machine and in the VM),
//! container registries, or a cluster.

mod again;
mod at_once;
mod cluster;
mod guest;
mod inventory;
mod lanes;
mod left_out;
mod needs;
mod node;
mod preflight;
mod program;
mod registry;
mod tally;
mod vm;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::interrupt::Interrupt;
use crate::lock::Lock;
use crate::root::RootAccess;
use crate::workspace::{Profile, Workspace, this_program};
use crate::{bench, command, languages, opa, rego, setup, sweep};
use needs::Needs;
use program::TestProgram;
pub(crate) use program::{compile_staged, staged};
use tally::{Failure, Tally};

/// The test targets with `test = false` in their manifest that need root and real cgroups.
pub(crate) const KERNEL: &str = "kernel";
/// Those that mount file systems through /dev/fuse, as root: on this machine, since the VM does not load its kernel's modules.
const FUSE: &str = "fuse";
/// Those that need a cluster as well.
const CLUSTER: &str = "cluster";
/// Those that need container registries, and no root.
const REGISTRY: &str = "registry";
/// Those that need policies in languages other than Rust, and no root.
const LANGUAGES: &str = "languages";
/// Those that need a browser, and no root.
const BROWSER: &str = "browser";
/// All targets above.
pub(crate) const STAGED: [&str; 6] = [KERNEL, FUSE, CLUSTER, REGISTRY, LANGUAGES, BROWSER];

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these stages. Default: all. Modules and binaries are built if a stage needs them.
    #[arg(long, value_name = "STAGE", value_delimiter = ',')]
    only: Vec<Stage>,
    /// Run only kernel, registry and cluster tests whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run the stages one after the other, and print their output immediately.
    #[arg(long)]
    sequential: bool,
    /// Run also the long tests for which `make test` has a shorter one, as `make test-all` does.
    #[arg(long)]
    all: bool,
    /// Run nothing; rewrite the list of all tests, with which each run compares the existing tests.
    #[arg(long)]
    inventory: bool,
}

impl Args {
    fn selection(&self) -> Selection<'_> {
        Selection::of(self.filter.as_deref(), self.all)
    }

    /// The profile that compiles the tests and the binaries that they run: what ships has its own tests before a release, since it takes
    /// several times as long to compile. Benches are always in release.
    fn profile(&self, wanted: &[Stage]) -> Profile {
        if self.all || wanted.contains(&Stage::Bench) { Profile::Release } else { Profile::Dev }
    }
}

/// Arguments of a stage in a process of its own, built by the run that starts it.
#[derive(clap::Args)]
pub(crate) struct StageArgs {
    stage: Stage,
    /// The file that receives the counts.
    #[arg(long, value_name = "FILE")]
    tally: PathBuf,
    /// As for the whole run.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// As for the whole run.
    #[arg(long)]
    all: bool,
    /// The tests and the binaries were compiled with the release profile.
    #[arg(long)]
    release: bool,
}

/// A part of the test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// The Rego library, template and examples, and `cargo test` for all crates: needs neither root nor a kernel of any kind.
    Workspace,
    /// The kernel tests on this machine's own cgroups, as root.
    Kernel,
    /// The same test programs on cgroup v2, in user-mode Linux.
    Uml,
    /// Those kernel tests that need several CPUs, NUMA nodes, cpusets or PSI, in an emulated machine with cgroup v2.
    Vm,
    /// The agent's binary beside real container registries on this machine.
    Registry,
    /// The examples in Go and Python, in the engine.
    Languages,
    /// The page of `qosm ui` in Debian's chromium.
    Browser,
    /// The agent beside a real API server and a real kubelet on this machine, as root.
    Cluster,
    /// The agent on a node with systemd, cgroup v2 and the systemd driver, in user-mode Linux.
    Node,
    /// Each bench once in its shortest form, as root: that it runs to its end, not what it measures.
    Bench,
}

/// Selects tests of a stage.
#[derive(Clone, Copy, Debug)]
enum Selection<'a> {
    /// All but those that are left to `make test-all`.
    Short,
    /// All, or those whose name contains this.
    All(Option<&'a str>),
    /// Tests that failed, each in a run of its own.
    Again(&'a [Failure]),
}

impl<'a> Selection<'a> {
    /// A filter also selects tests that `make test` leaves out.
    fn of(filter: Option<&'a str>, all: bool) -> Self {
        if filter.is_none() && !all { Self::Short } else { Self::All(filter) }
    }

    /// The runs of a stage's test program, each as its arguments.
    fn runs(&self, stage: Stage, program: &str) -> Vec<Vec<String>> {
        let skip = |name: &str| ["--skip".to_owned(), name.to_owned()];
        let elsewhere = left_out::elsewhere(stage).iter().flat_map(|name| skip(name));
        match self {
            Self::Short => {
                let only = left_out::only(stage).iter().map(|name| (*name).to_owned());
                vec![only.chain(elsewhere).chain(left_out::of(stage).flat_map(skip)).collect()]
            }
            Self::All(filter) => {
                // On the node everything takes ten times as long, so only tests that need such a node run there.
                let only: &[&str] = if stage == Stage::Node { left_out::only(stage) } else { &[] };
                let names: Vec<&str> = filter.map_or_else(|| only.to_vec(), |text| vec![text]);
                vec![names.into_iter().map(str::to_owned).chain(elsewhere).collect()]
            }
            Self::Again(failures) => failures
                .iter()
                .filter(|failure| failure.program == program)
                .map(|failure| vec!["--exact".to_owned(), failure.test.clone()])
                .collect(),
        }
    }
}

/// Common state of all stages.
struct Run<'a> {
    workspace: &'a Workspace,
    access: RootAccess,
    /// Path of this program.
    xtask: PathBuf,
    interrupt: Interrupt,
}

impl<'a> Run<'a> {
    /// From here on an interrupt ends the tests, and what was started for them is stopped.
    fn begin(workspace: &'a Workspace, access: RootAccess, xtask: PathBuf) -> Result<Self> {
        Ok(Self { workspace, access, xtask, interrupt: Interrupt::listen()? })
    }
}

/// Minimum time limit of a stage, within which it never counts as hanging.
const LEAST_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The folder of the stages' logs and counts, in the target directory.
const STAGES: &str = "test-stages";

/// A copy of this program at a path that does not change: cargo may rebuild the program while it runs, also for another checkout with the
/// same target directory.
fn own_copy(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join(STAGES);
    let (fresh, copy) = (folder.join("xtask.new"), folder.join("xtask"));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::copy("/proc/self/exe", &fresh))
        // A running program cannot be written to, but can be replaced.
        .and_then(|_| fs::rename(&fresh, &copy))
        .with_context(|| format!("{} cannot be written", copy.display()))?;
    Ok(copy)
}

/// Number of the longest tests that are reported.
const LONGEST: usize = 12;

/// Results of the stages.
#[derive(Debug, Default)]
struct Report {
    tally: Tally,
    /// In the order in which the stages end.
    times: Vec<Took>,
}

/// Duration of a part of the run.
#[derive(Debug)]
struct Took {
    what: String,
    took: Duration,
    /// Maximum time that it should take.
    budget: Option<Duration>,
}

/// Runs the stages in parallel lanes, all of them even if some fail; then runs failed tests that may be retried once more and alone. Prints
/// the time of each stage and, as the last line, `N passed, N failed`.
///
/// # Errors
///
/// If the modules, the binaries or the tests do not compile, there is no root, or this process is asked to end.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let wanted: Vec<_> = Stage::value_variants()
        .iter()
        .copied()
        .filter(|stage| match args.only.as_slice() {
            [] => args.all || !stage.is_in_the_whole_run_alone(),
            only => only.contains(stage),
        })
        .collect();
    let workspace = &workspace.compiled_with(args.profile(&wanted));
    if args.inventory {
        program::compile_unasked(workspace, &Interrupt::default())?;
        compile_staged(workspace, &STAGED)?;
        inventory::write(workspace)?;
        return Ok(ExitCode::SUCCESS);
    }
    let access = RootAccess::here();
    if wanted.iter().any(|stage| stage.needs_root()) && access == RootAccess::None {
        bail!(
            "the tests on this machine's kernel need root to make cgroups: run this as root or allow `sudo` without a \
             password; `make test ARGS=\"--only workspace,uml,vm,registry,languages\"` runs the others"
        );
    }
    preflight::check(workspace, &wanted)?;
    let _lock = Lock::wait(workspace)?;
    sweep::run(workspace, access);
    let mut report = Report::default();
    let begun = Instant::now();
    // The compiler for modules comes first.
    setup::install(workspace, &[setup::Purpose::Build])?;
    let needs = Needs::default();
    needs.install(workspace, &wanted, !matches!(args.selection(), Selection::Short));
    needs.build(workspace, &wanted)?;
    report.times.push(Took { what: "setup and build".to_owned(), took: begun.elapsed(), budget: None });

    let run = Run::begin(workspace, access, own_copy(workspace)?)?;
    if wanted.contains(&Stage::Workspace) {
        needs.compile(workspace, &args.selection(), args.only.is_empty(), &run.interrupt);
    }
    let lanes = lanes::of(|stage| wanted.contains(&stage));
    match lanes.as_slice() {
        [_, _, ..] if !args.sequential => lanes::run(&run, args, lanes, &needs, &mut report)?,
        _ => {
            for stage in lanes.concat() {
                if !needs.wait(stage, &run.interrupt)? {
                    continue;
                }
                let begun = Instant::now();
                stage.account(&run, &args.selection(), &mut report.tally)?;
                let (what, budget) = (stage.to_string(), Some(stage.budget()));
                report.times.push(Took { what, took: begun.elapsed(), budget });
            }
        }
    }
    let (tally, times) = needs.into_counts();
    report.tally.add(tally);
    report.times.extend(times);
    let begun = Instant::now();
    let flaky = again::run(&run, &mut report.tally)?;
    if !flaky.is_empty() || !report.tally.failures.is_empty() {
        report.times.push(Took { what: "tried again".to_owned(), took: begun.elapsed(), budget: None });
    }
    tell(&report, &flaky, args.selection());
    Ok(if report.tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one stage whose needs are installed and built, and writes its counts to a file.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_stage(workspace: &Workspace, args: &StageArgs) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let workspace = &workspace.compiled_with(if args.release { Profile::Release } else { Profile::Dev });
    let run = Run::begin(workspace, RootAccess::here(), this_program()?)?;
    args.stage.account(&run, &Selection::of(args.filter.as_deref(), args.all), &mut tally)?;
    fs::write(&args.tally, serde_json::to_vec(&tally)?)
        .with_context(|| format!("{} cannot be written", args.tally.display()))?;
    Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the end of the log: times, flaky tests, failures.
fn tell(Report { tally, times }: &Report, flaky: &[again::Flaky], selection: Selection<'_>) {
    command::heading("what it came to");
    for Took { what, took, budget } in times {
        let budget = budget.map_or(String::new(), |budget| {
            let over = if *took > budget { ", which it exceeded" } else { "" };
            format!(" of {} s{over}", budget.as_secs())
        });
        println!("    {what:<16} {:>5} s{budget}", took.as_secs());
    }
    if matches!(selection, Selection::Short) {
        left_out::lines().for_each(|line| println!("    left to make test-all: {line}"));
    }
    let mut long: Vec<_> = tally.long.iter().collect();
    long.sort_by(|one, other| other.cmp(one));
    for test in long.iter().take(LONGEST) {
        println!("    long: {test}");
    }
    for wait in &tally.slow {
        println!("    slow: {wait}");
    }
    for one in flaky {
        println!("    flaky: {one}");
    }
    for Failure { stage, program, test, output } in &tally.failures {
        println!("    failed: {stage}, {program}, {test}");
        output.lines().for_each(|line| println!("        {line}"));
    }
    if tally.ignored > 0 {
        println!("{} ignored: an ignored test shows nothing, take its #[ignore] away", tally.ignored);
    }
    if tally.not_run > 0 {
        println!("{} not run: they cannot run here, as their lines in the log say", tally.not_run);
    }
    if !flaky.is_empty() {
        println!("{} flaky: passed when they were tried again, alone", flaky.len());
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl Stage {
    const fn needs_root(self) -> bool {
        matches!(self, Self::Kernel | Self::Cluster | Self::Bench)
    }

    /// Whether only `make test-all` runs the stage, unless it is named.
    const fn is_in_the_whole_run_alone(self) -> bool {
        matches!(self, Self::Node | Self::Bench)
    }

    /// Whether the stage's tests run one after the other: there is only one node, and one kernel.
    const fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::Kernel | Self::Uml | Self::Vm | Self::Cluster | Self::Node)
    }

    /// Expected maximum time on two cores in parallel with the other lanes, in `make test`. Exceeding it is reported, and is no failure.
    const fn budget(self) -> Duration {
        Duration::from_secs(
            60 * match self {
                Self::Languages | Self::Browser => 2,
                Self::Vm => 6,
                Self::Workspace | Self::Kernel | Self::Uml | Self::Registry => 8,
                Self::Bench | Self::Node => 10,
                Self::Cluster => 16,
            },
        )
    }

    /// Time limit after which the stage hangs: a slow machine needs several times the budget, and `make test-all` runs more.
    fn limit(self, is_whole: bool) -> Duration {
        let limit = LEAST_LIMIT.max(self.budget() * 4);
        if is_whole { limit * 3 } else { limit }
    }

    /// Installs the stage's needs; with `is_whole`, also those of the tests that `make test` leaves out. If a need of only some tests cannot be
    /// installed, only these tests fail, and report it themselves.
    fn set_up(self, is_whole: bool, install: impl Fn(&[setup::Purpose]) -> Result<()>) -> Result<()> {
        install(self.purposes())?;
        if is_whole {
            install(self.purposes_of_what_is_left_out())?;
        }
        for purpose in self.purposes_of_some_tests() {
            command::warn(install(&[*purpose]));
        }
        Ok(())
    }

    const fn purposes_of_some_tests(self) -> &'static [setup::Purpose] {
        use setup::Purpose::{Shells, Units};
        match self {
            Self::Workspace => &[Units, Shells],
            _ => &[],
        }
    }

    const fn purposes_of_what_is_left_out(self) -> &'static [setup::Purpose] {
        match self {
            Self::Registry => &[setup::Purpose::Wkg],
            _ => &[],
        }
    }

    /// The stage's needs besides a Rust for Wasm.
    const fn purposes(self) -> &'static [setup::Purpose] {
        use setup::Purpose::{Browser, Cluster, Languages, Node, Registry, Rego, Test};
        match self {
            Self::Workspace => &[Rego],
            Self::Kernel => &[Rego],
            Self::Uml | Self::Vm => &[Test, Rego],
            Self::Registry => &[Registry],
            Self::Languages => &[Languages],
            Self::Browser => &[Browser],
            Self::Cluster => &[Cluster, Registry, Rego],
            Self::Node => &[Node, Rego],
            Self::Bench => &[Test, Cluster, Rego],
        }
    }

    /// The stage's test targets that `cargo test` does not run by default.
    const fn targets(self) -> &'static [&'static str] {
        match self {
            Self::Kernel => &[KERNEL, FUSE],
            Self::Uml | Self::Vm => &[KERNEL],
            Self::Registry => &[REGISTRY],
            Self::Languages => &[LANGUAGES],
            Self::Browser => &[BROWSER],
            Self::Cluster | Self::Node => &[CLUSTER],
            Self::Workspace | Self::Bench => &[],
        }
    }

    /// Runs the stage; a stage that breaks off counts as one failure.
    ///
    /// # Errors
    ///
    /// If this process is asked to end.
    fn account(self, run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
        let result = self.run(run, selection, tally);
        if run.interrupt.asked() {
            bail!("interrupted");
        }
        if let Err(error) = result {
            command::heading(&format!("the stage {self} broke off"));
            command::tell(&error);
            tally.failed += 1;
        }
        Ok(())
    }

    fn run(self, run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
        match self {
            Self::Workspace => workspace(run, selection, tally),
            Self::Kernel => {
                command::heading("building the kernel tests");
                for target in [KERNEL, FUSE] {
                    here(run, &program::staged(run.workspace, target)?, selection, tally)?;
                }
                Ok(())
            }
            Self::Uml | Self::Vm => vm::run(run, self, selection, tally),
            Self::Registry => registry::run(run, selection, tally),
            Self::Languages => {
                languages::check_bindings(run.workspace)?;
                languages::build(run.workspace)?;
                for test in program::staged(run.workspace, LANGUAGES)? {
                    command::heading(&format!("tests of {} with modules in Go and Python", test.package));
                    let modules = run.workspace.language_modules();
                    test.run(run, self, selection, tally, &mut at_once::print, |program| {
                        program.env("QOSM_LANGUAGES", &modules);
                    })?;
                }
                Ok(())
            }
            Self::Browser => {
                for test in program::staged(run.workspace, BROWSER)? {
                    command::heading(&format!("tests of {} in a browser", test.package));
                    test.run(run, self, selection, tally, &mut at_once::print, |_| {})?;
                }
                Ok(())
            }
            Self::Cluster => cluster::run(run, selection, tally),
            Self::Node => node::run(run, selection, tally),
            Self::Bench => bench::short(run.workspace, |name, good| {
                println!("    bench {name}: {}", if good { "runs" } else { "FAILED" });
                if good { tally.passed += 1 } else { tally.failed += 1 }
            }),
        }
    }
}

/// Property tests use the same cases in each `make test`, so that a change does not fail for a counterexample that it did not cause.
/// `make test-all` and `cargo test` draw new cases, and print those that fail.
const PROPTEST_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261125");

/// Tests with many cases run all of them if this is set, else a sample.
const WHOLE: &str = "QOSM_TEST_ALL";

/// Programs that take longest. They begin first, so that none of them still runs when all others have ended.
const FIRST: [&str; 3] = ["qosm-policy author", "qosm-registry faulty", "qosm-engine rego"];

/// Tests the Rego, then runs all that `cargo test` runs by default.
fn workspace(run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    let workspace = run.workspace;
    let is_again = matches!(selection, Selection::Again(_));
    if !is_again {
        let counts = rego::test(workspace)?;
        tally.passed += counts.passed;
        tally.failed += counts.failed;
        tally.ignored += counts.skipped;
        tally.failures.extend(counts.failures.into_iter().map(|(test, output)| Failure {
            stage: Stage::Workspace,
            program: again::REGO.to_owned(),
            test,
            output,
        }));
    }
    command::heading("tests of all crates");
    // The filter is for the other stages; here it would skip nearly everything.
    let selection = match selection {
        Selection::All(_) => Selection::All(None),
        Selection::Short => Selection::Short,
        Selection::Again(failures) => Selection::Again(failures),
    };
    let is_whole = matches!(selection, Selection::All(_));
    let (binary, modules, bundles) = (workspace.binary(), workspace.modules(), rego::bundles(workspace));
    let path = opa::path(workspace)?;
    let mut programs = program::unasked(workspace)?;
    programs.sort_by_key(|test| FIRST.iter().position(|name| *name == test.name()).unwrap_or(FIRST.len()));
    let prepare = |program: &mut Command| {
        program.env("QOSM_BIN", &binary).env("QOSM_POLICY_BIN", workspace.policy_binary());
        program.env("QOSM_MODULES", &modules).env("QOSM_XTASK", &run.xtask);
        program.env("QOSM_BUNDLES", &bundles).env("PATH", &path);
        if is_whole {
            program.env(WHOLE, "1");
        } else if std::env::var_os(PROPTEST_SEED.0).is_none() {
            program.env(PROPTEST_SEED.0, PROPTEST_SEED.1);
        }
    };
    let (selection, prepare) = (&selection, &prepare);
    let mut jobs: Vec<at_once::Job<'_>> = vec![Box::new(|tally, lines| doctests(run, selection, tally, lines))];
    for test in &programs {
        jobs.push(Box::new(move |tally, lines| test.run(run, Stage::Workspace, selection, tally, lines, prepare)));
    }
    at_once::run(jobs, if is_again { 1 } else { at_once::AT_ONCE }, &run.interrupt, tally)?;
    if !matches!(selection, Selection::Short) {
        command::heading("opa-wasm beside the engine");
        for args in selection.runs(Stage::Workspace, program::BESIDE_OPA) {
            let mut cargo = bench::beside_opa(workspace, "test");
            cargo.args(["--no-fail-fast", "--"]).args(args);
            let name = program::BESIDE_OPA;
            program::counted(run, Stage::Workspace, name, &mut cargo, tally, &mut at_once::print)?;
        }
    }
    Ok(())
}

/// Runs the examples in the documentation of all crates.
fn doctests(run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally, lines: at_once::Lines<'_>) -> Result<()> {
    for args in selection.runs(Stage::Workspace, program::DOCTESTS) {
        let mut cargo = run.workspace.cargo_for_all("test");
        cargo.args(["--doc", "--no-fail-fast", "--"]).args(args);
        program::counted(run, Stage::Workspace, program::DOCTESTS, &mut cargo, tally, lines)?;
    }
    Ok(())
}

/// Number of rounds of `kill -9` in `make test`. `make test-all` runs three times as many, `make soak` ten thousand.
const KILL_ROUNDS: (&str, &str) = ("QOSM_KILL_ROUNDS", "100");

/// Runs the tests on this machine, one at a time: they measure time and share two cores.
fn here(run: &Run<'_>, tests: &[TestProgram], selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    let workspace = run.workspace;
    let (binary, policy_binary) = (workspace.binary(), workspace.policy_binary());
    let (modules, bundles) = (workspace.modules(), rego::bundles(workspace));
    let variables: [(&str, &OsStr); 5] = [
        ("QOSM_BIN", binary.as_ref()),
        ("QOSM_POLICY_BIN", policy_binary.as_ref()),
        ("QOSM_MODULES", modules.as_ref()),
        ("QOSM_BUNDLES", bundles.as_ref()),
        ("RUST_BACKTRACE", "1".as_ref()),
    ];
    let mut variables = variables.to_vec();
    if matches!(selection, Selection::Short) && std::env::var_os(KILL_ROUNDS.0).is_none() {
        variables.push((KILL_ROUNDS.0, KILL_ROUNDS.1.as_ref()));
    }
    for test in tests {
        command::heading(&format!("kernel tests of {} on this machine's cgroups", test.package));
        test.run_as_root(run, Stage::Kernel, selection, tally, &variables)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_not_lost_for_what_only_some_of_its_tests_need() {
        use setup::Purpose::{Rego, Shells, Units};
        let without = |missing: &'static [setup::Purpose]| {
            let asked = std::cell::RefCell::new(Vec::new());
            let install = |purposes: &[setup::Purpose]| {
                asked.borrow_mut().extend_from_slice(purposes);
                anyhow::ensure!(!purposes.iter().any(|purpose| missing.contains(purpose)), "there is no apt");
                Ok(())
            };
            let is_ready = Stage::Workspace.set_up(false, install).is_ok();
            (is_ready, asked.into_inner())
        };
        for missing in [&[][..], &[Units], &[Shells], &[Units, Shells]] {
            assert_eq!(without(missing), (true, vec![Rego, Units, Shells]));
        }
        assert_eq!(without(&[Rego]), (false, vec![Rego]));
    }

    #[test]
    fn a_failed_test_is_run_again_by_its_whole_name_and_in_its_own_program_only() {
        let failure = |program: &str, test: &str| Failure {
            stage: Stage::Kernel,
            program: program.to_owned(),
            test: test.to_owned(),
            output: String::new(),
        };
        let failures = [failure("a kernel", "x::one"), failure("b kernel", "x::two"), failure("a kernel", "x::three")];
        let again = Selection::Again(&failures);
        assert_eq!(again.runs(Stage::Kernel, "a kernel"), [["--exact", "x::one"], ["--exact", "x::three"]]);
        assert!(again.runs(Stage::Kernel, "c kernel").is_empty());
        assert_eq!(
            Selection::All(None).runs(Stage::Kernel, "c kernel"),
            [["--skip", "block_io::", "--skip", "node_memory::"]]
        );
        assert_eq!(
            Selection::All(Some("x")).runs(Stage::Kernel, "c kernel"),
            [["x", "--skip", "block_io::", "--skip", "node_memory::"]]
        );
        let registry = Selection::Short.runs(Stage::Registry, "c registry");
        assert_eq!(registry, [["--skip", "publish::modules_that_are_built_elsewhere", "--skip", "wkg::"]]);
        assert_eq!(Selection::Short.runs(Stage::Languages, "c languages"), [[""; 0]]);
        let [uml, vm] = [Stage::Uml, Stage::Vm].map(|stage| Selection::Short.runs(stage, "c kernel").concat());
        assert!(vm.contains(&"locality::".to_owned()) && !vm.contains(&"--skip".to_owned()), "{vm:?}");
        let skipped: Vec<_> = uml.chunks(2).map(|pair| (pair[0].as_str(), &pair[1])).collect();
        assert!(vm.iter().all(|name| skipped.contains(&("--skip", name))), "{uml:?}");
    }
}
