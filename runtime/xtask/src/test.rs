//! The whole test run: modules, binaries, the workspace's tests, and the tests that need a kernel, here and in the VM, container
//! registries, or a cluster.

mod cluster;
mod interruptible;
mod registry;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::privilege::Privilege;
use crate::vm::{self, Share};
use crate::workspace::Workspace;
use crate::{command, languages, modules, opa, rego, setup};

/// The test targets with `test = false` in their manifest that need root and real cgroups.
const KERNEL: &str = "kernel";
/// Those that mount file systems of their own through /dev/fuse, as root: on this machine, since the VM's kernel comes without.
const FUSE: &str = "fuse";
/// Those that need a cluster as well.
const CLUSTER: &str = "cluster";
/// Those that need container registries, and no root.
const REGISTRY: &str = "registry";
/// Those that need policies in other languages than Rust, and no root.
const LANGUAGES: &str = "languages";
/// All of these.
pub(crate) const STAGED: [&str; 5] = [KERNEL, FUSE, CLUSTER, REGISTRY, LANGUAGES];

/// Emulation is slow, and an unlucky machine is slow to emulate; a hang is longer still.
const VM_LIMIT: Duration = Duration::from_secs(25 * 60);

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these stages; all, if not said. Modules and binaries are built for whichever stage needs them.
    #[arg(long, value_name = "STAGE", value_delimiter = ',')]
    only: Vec<Stage>,
    /// Only kernel, registry and cluster tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// A part of the test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    /// The Rego library, template and examples, and `cargo test` for all crates: needs neither root nor a kernel of any kind.
    Workspace,
    /// The kernel tests on this machine's own cgroups, as root.
    Kernel,
    /// The same programs in a VM with cgroup v2.
    Vm,
    /// The agent's binary beside real container registries on this machine.
    Registry,
    /// The examples in Go and Python, in the engine.
    Languages,
    /// The agent beside a real API server and a real kubelet on this machine, as root.
    Cluster,
}

/// What the tests of all stages came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Takes in what libtest printed, if the line is its summary.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ").and_then(|(_, rest)| rest.split_once(". ")) else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Counts a program that ended badly, unless its own summary says so already: it crashed, hung or did not compile.
    fn end(&mut self, failed_before: u64, good: bool) {
        if !good && self.failed == failed_before {
            self.failed += 1;
        }
    }
}

/// A test program with the crate that it is of.
#[derive(Debug)]
struct TestProgram {
    package: String,
    folder: PathBuf,
    program: PathBuf,
}

/// Runs the stages, all of them whatever the earlier ones showed, and prints `N passed, N failed`.
///
/// # Errors
///
/// When something cannot be built, or root or the VM cannot be had: a test that did not run has not passed.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let wants = |stage| args.only.is_empty() || args.only.contains(&stage);
    let privilege = Privilege::here();
    if (wants(Stage::Kernel) || wants(Stage::Cluster)) && privilege == Privilege::None {
        bail!(
            "the tests on this machine's kernel need root to make cgroups: run this as root or allow `sudo` without a \
             password; `make test ARGS=\"--only workspace,vm,registry,languages\"` runs the others"
        );
    }
    let mut purposes = vec![if wants(Stage::Vm) { setup::Purpose::Test } else { setup::Purpose::Build }];
    // Everywhere a policy in Rego runs, but beside the registries of the agent and in the languages' own stage.
    let needs_bundles = [Stage::Workspace, Stage::Kernel, Stage::Vm, Stage::Cluster].into_iter().any(wants);
    purposes.extend(needs_bundles.then_some(setup::Purpose::Rego));
    purposes.extend((wants(Stage::Registry) || wants(Stage::Cluster)).then_some(setup::Purpose::Registry));
    purposes.extend(wants(Stage::Cluster).then_some(setup::Purpose::Cluster));
    purposes.extend(wants(Stage::Languages).then_some(setup::Purpose::Languages));
    setup::install(workspace, &purposes)?;
    modules::build(workspace, &modules::Args::default())?;
    command::heading("binaries");
    command::run(workspace.cargo().args(["build", "--release", "--workspace"]))?;

    let mut tally = Tally::default();
    if needs_bundles {
        rego::build(workspace)?;
    }
    if wants(Stage::Workspace) {
        let counts = rego::test(workspace)?;
        tally.passed += counts.passed;
        tally.failed += counts.failed;
        tally.ignored += counts.skipped;
        command::heading("tests of all crates");
        let mut cargo = workspace.cargo();
        cargo.args(["test", "--release", "--workspace", "--no-fail-fast"]);
        cargo.env("QOSM_BIN", workspace.binary()).env("QOSM_MODULES", workspace.modules());
        cargo.env("QOSM_BUNDLES", rego::bundles(workspace)).env("PATH", opa::path(workspace)?);
        counted(&mut cargo, &mut tally)?;
    }
    if wants(Stage::Kernel) || wants(Stage::Vm) {
        command::heading("building the kernel tests");
        let tests = programs(workspace, KERNEL)?;
        if wants(Stage::Kernel) {
            here(workspace, privilege, &tests, args.filter.as_deref(), &mut tally)?;
            here(workspace, privilege, &programs(workspace, FUSE)?, args.filter.as_deref(), &mut tally)?;
        }
        if wants(Stage::Vm) {
            in_vm(workspace, &tests, args.filter.as_deref(), &mut tally)?;
        }
    }
    if wants(Stage::Registry) {
        registry::run(workspace, args.filter.as_deref(), &mut tally)?;
    }
    if wants(Stage::Languages) {
        languages::check_bindings(workspace)?;
        languages::build(workspace)?;
        for test in programs(workspace, LANGUAGES)? {
            command::heading(&format!("tests of {} with modules in Go and Python", test.package));
            let mut program = Command::new(&test.program);
            counted(program.env("QOSM_LANGUAGES", workspace.language_modules()).current_dir(&test.folder), &mut tally)?;
        }
    }
    if wants(Stage::Cluster) {
        cluster::run(workspace, privilege, args.filter.as_deref(), &mut tally)?;
    }
    if tally.ignored > 0 {
        println!("{} ignored: an ignored test shows nothing, take its #[ignore] away", tally.ignored);
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 && tally.ignored == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs test programs and counts what they report, line by line as it comes.
fn counted(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let before = tally.failed;
    let status = command::lines(command, |line| {
        tally.read(line);
        println!("{line}");
    })?;
    tally.end(before, status.success());
    Ok(())
}

/// Compiles each crate's target of that name and returns the programs.
fn programs(workspace: &Workspace, name: &str) -> Result<Vec<TestProgram>> {
    /// One line that `cargo --message-format=json` prints; the fields of all kinds of line in one.
    #[derive(Deserialize)]
    struct Message {
        manifest_path: Option<PathBuf>,
        target: Option<qosm_build::Target>,
        executable: Option<PathBuf>,
    }
    let packages = modules::packages(workspace)?;
    // A target of that name that `cargo test` runs unasked has been run.
    let is_wanted = |target: &qosm_build::Target| {
        target.name == name && !target.test && target.kind.iter().any(|kind| kind == "test")
    };
    if !packages.iter().any(|package| package.targets.iter().any(is_wanted)) {
        bail!("no crate has a test target `{name}`: its tests are gone");
    }
    let mut tests = Vec::new();
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--release", "--workspace", "--test", name, "--no-run"]);
    let status = command::lines(cargo.arg("--message-format=json-render-diagnostics"), |line| {
        let Ok(message) = serde_json::from_str::<Message>(line) else { return };
        let (Some(manifest), Some(target), Some(program)) = (message.manifest_path, message.target, message.executable)
        else {
            return;
        };
        let package = packages.iter().find(|package| package.manifest_path == manifest);
        if let Some(package) = package.filter(|_| is_wanted(&target)) {
            let folder = manifest.parent().unwrap_or(workspace.root()).to_path_buf();
            tests.push(TestProgram { package: package.name.clone(), folder, program });
        }
    })?;
    anyhow::ensure!(status.success(), "the {name} tests do not compile");
    anyhow::ensure!(!tests.is_empty(), "cargo compiled no {name} test");
    tests.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(tests)
}

/// On this machine, one test at a time: they measure time and share two cores.
fn here(
    workspace: &Workspace,
    privilege: Privilege,
    tests: &[TestProgram],
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<()> {
    let (binary, modules, bundles) = (workspace.binary(), workspace.modules(), rego::bundles(workspace));
    let variables: [(&str, &OsStr); 4] = [
        ("QOSM_BIN", binary.as_ref()),
        ("QOSM_MODULES", modules.as_ref()),
        ("QOSM_BUNDLES", bundles.as_ref()),
        ("RUST_BACKTRACE", "1".as_ref()),
    ];
    for test in tests {
        command::heading(&format!("kernel tests of {} on this machine's cgroups", test.package));
        let mut program = privilege.command(&test.program, &variables).context("root is not to be had")?;
        program.args(["--test-threads=1"]).args(filter).current_dir(&test.folder);
        counted(&mut program, tally)?;
    }
    Ok(())
}

/// All in one boot; the guest sees the programs, the agent and the modules, and nothing else of this machine.
fn in_vm(workspace: &Workspace, tests: &[TestProgram], filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    command::heading("kernel tests in a VM with cgroup v2 and two NUMA nodes");
    let guest_program = |test: &TestProgram| format!("/bin/{KERNEL}-{}", test.package);
    let mut files = vec![
        Share { host: workspace.binary(), guest: "/bin/qosm".into() },
        Share { host: workspace.modules(), guest: "/policies".into() },
        Share { host: rego::bundles(workspace), guest: "/bundles".into() },
    ];
    files.extend(tests.iter().map(|test| Share { host: test.program.clone(), guest: guest_program(test).into() }));
    let mut before = tally.failed;
    let code = vm::script_in_vm(workspace, &files, &script(tests, guest_program, filter), VM_LIMIT, |line| {
        if let Some(package) = line.strip_prefix(ENDED_WELL).or_else(|| line.strip_prefix(ENDED_BADLY)) {
            tally.end(before, line.starts_with(ENDED_WELL));
            before = tally.failed;
            println!("    {} in the VM: {}", package.trim(), if line.starts_with(ENDED_WELL) { "good" } else { "bad" });
        } else {
            tally.read(line);
            println!("{line}");
        }
    });
    match code {
        Ok(code) => tally.end(before, code == 0 || tally.failed > 0),
        Err(error) => {
            println!("    {error:#}");
            tally.end(before, false);
        }
    }
    Ok(())
}

/// What the guest prints after each program, before the crate's name.
const ENDED_WELL: &str = "qosm-test: good ";
/// The same for a program that failed.
const ENDED_BADLY: &str = "qosm-test: bad ";

/// `QOSM_TEST_VM` tells tests that all they need is there: what is skipped elsewhere fails here.
fn script(tests: &[TestProgram], guest_program: impl Fn(&TestProgram) -> String, filter: Option<&str>) -> String {
    let mut script =
        "export QOSM_BIN=/bin/qosm QOSM_MODULES=/policies QOSM_BUNDLES=/bundles QOSM_DISK=/disk QOSM_TEST_VM=1 \
         RUST_BACKTRACE=1\nbad=0\n"
            .to_owned();
    let filter = filter.map(|text| format!(" '{}'", text.replace('\'', ""))).unwrap_or_default();
    for test in tests {
        let (program, package) = (guest_program(test), &test.package);
        script += &format!(
            "if {program} --test-threads=1{filter}; then echo '{ENDED_WELL}{package}'; \
             else echo '{ENDED_BADLY}{package}'; bad=1; fi\n"
        );
    }
    script + "exit $bad\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up_whatever_stands_around_them() {
        let mut tally = Tally::default();
        tally.read("running 3 tests");
        tally.read("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s");
        tally.read(
            "noise test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.2s",
        );
        assert_eq!(tally, Tally { passed: 4, failed: 2, ignored: 1 });
    }

    #[test]
    fn a_program_that_crashed_counts_as_one_failure() {
        let mut tally = Tally::default();
        tally.end(0, false);
        assert_eq!(tally.failed, 1);
        tally.read("test result: FAILED. 0 passed; 2 failed; 0 ignored");
        tally.end(1, false);
        assert_eq!(tally.failed, 3);
        tally.end(3, true);
        assert_eq!(tally.failed, 3);
    }

    #[test]
    fn the_guest_runs_every_program_even_after_a_failure() {
        let test =
            |package: &str| TestProgram { package: package.to_owned(), folder: "/".into(), program: "/x".into() };
        let script = script(&[test("one"), test("two")], |test| format!("/bin/{}", test.package), Some("it's"));
        assert!(script.contains("if /bin/one --test-threads=1 'its'; then"), "{script}");
        assert!(script.contains("if /bin/two"), "{script}");
        assert!(script.ends_with("exit $bad\n"), "{script}");
    }
}
