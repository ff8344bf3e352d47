//! Compiles test programs with cargo, and runs them.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::at_once::Lines;
use super::tally::Reading;
use super::{Run, STAGES, Selection, Stage, Tally, at_once};
use crate::interrupt::Interrupt;
use crate::workspace::Workspace;
use crate::{command, modules};

/// Name that stands for a program when `cargo test` runs the examples in the documentation.
pub(super) const DOCTESTS: &str = "doctests";
/// Name that stands for the programs of the tests that compare the engine with opa-wasm.
pub(super) const BESIDE_OPA: &str = "opa-wasm";

/// Time without output after which a program hangs; each test that ends prints a line. The longest test by far compiles a module for each
/// of OPA's own cases, once for each machine.
const SILENCE: Duration = Duration::from_secs(30 * 60);

/// A test program of a crate.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    target: String,
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
}

impl TestProgram {
    #[cfg(test)]
    pub(super) fn fake(package: &str) -> Self {
        Self { package: package.into(), target: "kernel".into(), folder: "/".into(), program: "/x".into() }
    }

    /// The name of the program in counts and lists: `qosm-host kernel`.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// Runs the selected tests of the program, with its default number of threads.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub(super) fn run(
        &self,
        run: &Run<'_>,
        stage: Stage,
        selection: &Selection<'_>,
        tally: &mut Tally,
        lines: Lines<'_>,
        prepare: impl Fn(&mut Command),
    ) -> Result<()> {
        for args in selection.runs(stage, &self.name()) {
            let mut program = Command::new(&self.program);
            prepare(&mut program);
            // As cargo does.
            program.args(args).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
            counted(run, stage, &self.name(), &mut program, tally, lines)?;
        }
        Ok(())
    }

    /// Runs the selected tests of the program as root and one at a time.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or not as root.
    pub(super) fn run_as_root(
        &self,
        run: &Run<'_>,
        stage: Stage,
        selection: &Selection<'_>,
        tally: &mut Tally,
        variables: &[(&str, &OsStr)],
    ) -> Result<()> {
        for args in selection.runs(stage, &self.name()) {
            let program = run.access.command(&self.program, variables);
            let mut program = program.context("root is not to be had")?;
            program.arg("--test-threads=1").args(args).current_dir(&self.folder);
            counted(run, stage, &self.name(), &mut program, tally, &mut at_once::print)?;
        }
        Ok(())
    }
}

/// The lists of compiled programs, next to the stages' output. Stages read them, since cargo itself would wait while other tests are being
/// compiled.
const UNASKED_LIST: &str = "unasked.json";
const STAGED_LIST: &str = "staged.json";

/// Compiles what `cargo test` runs by default, except doctests.
///
/// # Errors
///
/// When something does not compile, or this process is asked to end.
pub(super) fn compile_unasked(workspace: &Workspace, interrupt: &Interrupt) -> Result<()> {
    command::run_until_asked(&mut compiler(workspace, &[]), interrupt)?;
    keep(workspace, UNASKED_LIST, &compiled(workspace, &[], |target| target.test)?)
}

/// Compiles each crate's targets with these names, which `cargo test` does not run by default.
///
/// # Errors
///
/// When there is no target of a name, or one does not compile.
pub(crate) fn compile_staged(workspace: &Workspace, names: &[&str]) -> Result<()> {
    let packages = modules::packages(workspace)?;
    for &name in names {
        if !packages.iter().any(|package| package.targets.iter().any(|target| is_staged(target, name))) {
            bail!("no crate has a test target `{name}`: its tests are gone");
        }
    }
    let tests = if names.is_empty() {
        Vec::new()
    } else {
        let targets: Vec<_> = names.iter().flat_map(|name| ["--test", *name]).collect();
        compiled(workspace, &targets, |target| names.iter().any(|name| is_staged(target, name)))?
    };
    keep(workspace, STAGED_LIST, &tests)
}

fn is_staged(target: &qosm_build::Target, name: &str) -> bool {
    target.name == name && !target.test && target.kind.iter().any(|kind| kind == "test")
}

/// The programs that [`compile_unasked`] compiled.
///
/// # Errors
///
/// When it has not compiled any.
pub(super) fn unasked(workspace: &Workspace) -> Result<Vec<TestProgram>> {
    kept(workspace, UNASKED_LIST)
}

/// The programs of this name that [`compile_staged`] compiled.
///
/// # Errors
///
/// When it has compiled none.
pub(crate) fn staged(workspace: &Workspace, name: &str) -> Result<Vec<TestProgram>> {
    let tests: Vec<_> =
        kept(workspace, STAGED_LIST)?.into_iter().filter(|test: &TestProgram| test.target == name).collect();
    ensure!(
        !tests.is_empty(),
        "the tests `{name}` are not compiled: `cargo xtask test` does that, and runs this stage"
    );
    Ok(tests)
}

fn keep(workspace: &Workspace, name: &str, tests: &[TestProgram]) -> Result<()> {
    let file = workspace.target().join(STAGES).join(name);
    fs::create_dir_all(workspace.target().join(STAGES))
        .and_then(|()| fs::write(&file, serde_json::to_vec(tests)?))
        .with_context(|| format!("{} cannot be written", file.display()))
}

fn kept(workspace: &Workspace, name: &str) -> Result<Vec<TestProgram>> {
    let file = workspace.target().join(STAGES).join(name);
    let text = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is of another version", file.display()))
}

fn compiler(workspace: &Workspace, args: &[&str]) -> Command {
    let mut cargo = workspace.cargo_for_all("test");
    cargo.arg("--no-run").args(args);
    cargo
}

fn compiled(
    workspace: &Workspace,
    args: &[&str],
    is_wanted: impl Fn(&qosm_build::Target) -> bool,
) -> Result<Vec<TestProgram>> {
    /// A line of `cargo --message-format=json`, with the fields of all kinds of lines.
    #[derive(Deserialize)]
    struct Message {
        manifest_path: Option<PathBuf>,
        target: Option<qosm_build::Target>,
        profile: Option<Profile>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    let packages = modules::packages(workspace)?;
    let mut tests = Vec::new();
    let mut cargo = compiler(workspace, args);
    let status = command::lines(cargo.arg("--message-format=json-render-diagnostics"), |line| {
        let Ok(message) = serde_json::from_str::<Message>(line) else { return };
        let (Some(manifest), Some(target), Some(program)) = (message.manifest_path, message.target, message.executable)
        else {
            return;
        };
        // Binaries that integration tests run are no tests.
        let is_test = message.profile.is_some_and(|profile| profile.test);
        let package = packages.iter().find(|package| package.manifest_path == manifest);
        if let Some(package) = package.filter(|_| is_test && is_wanted(&target)) {
            let folder = manifest.parent().unwrap_or(workspace.root()).to_path_buf();
            tests.push(TestProgram { package: package.name.clone(), target: target.name, folder, program });
        }
    })?;
    ensure!(status.success(), "the tests do not compile");
    ensure!(!tests.is_empty(), "cargo compiled no test");
    tests.sort_by_key(TestProgram::name);
    Ok(tests)
}

/// Runs a test program and counts the results in its output line by line, which `lines` takes. Ends it when this process is asked to end.
///
/// # Errors
///
/// When it cannot be started or its output cannot be read.
pub(super) fn counted(
    run: &Run<'_>,
    stage: Stage,
    name: &str,
    program: &mut Command,
    tally: &mut Tally,
    lines: Lines<'_>,
) -> Result<()> {
    lines(&format!("    $ {}", command::line(program)));
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("the tests of {name} cannot be started"))?;
    let stdout = child.stdout.take().context("a piped command has no stdout")?;
    let pid = Pid::from_child(&child);
    let (ended, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watch = {
        let (ended, heard, interrupt) = (Arc::clone(&ended), Arc::clone(&heard), run.interrupt.clone());
        let (access, name) = (run.access, name.to_owned());
        thread::spawn(move || {
            let mut last = (0, Instant::now());
            while !ended.load(Ordering::Relaxed) {
                let said = heard.load(Ordering::Relaxed);
                if said != last.0 {
                    last = (said, Instant::now());
                }
                let hangs = last.1.elapsed() >= SILENCE;
                if hangs {
                    println!("    {name} is ended: none of its tests has ended within {} s", SILENCE.as_secs());
                }
                if hangs || interrupt.asked() {
                    access.terminate(pid);
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        })
    };
    let mut reading = Reading::new(stage, name);
    let read = command::each_line(stdout, |line| {
        heard.fetch_add(1, Ordering::Relaxed);
        reading.line(line);
        lines(line);
    });
    // Wait for the child only when it can no longer be signalled: until then its ID is not reused.
    ended.store(true, Ordering::Relaxed);
    // The thread does not panic.
    let _ = watch.join();
    let status = child.wait().with_context(|| format!("the tests of {name} cannot be waited for"))?;
    read.with_context(|| format!("the output of the tests of {name} cannot be read"))?;
    tally.add(reading.end(status.success()));
    Ok(())
}
