//! The Rego in this repository: checks, tests and builds the library, the template and the examples with the commands that authors use.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{command, opa};

/// The library, with its tests.
const SDK: &str = "sdk/rego";
/// The part of the library that a project has in `lib/qosm`.
const LIBRARY: &str = "sdk/rego/qosm";
/// Schema of a policy's input, for the type checker; projects have it next to the library.
const SCHEMA: &str = "sdk/rego/input.schema.json";
/// Samples in which every counter is 0, written from the schema.
const ZEROS: &str = "sdk/rego/qosm/zeros.rego";
/// The way out where one of them is not what it follows from.
const UPDATE: &str = "run `cargo xtask rego --update`";
/// The template, and its name.
const TEMPLATE: &str = "sdk/templates/rego";
const NAME_OF_TEMPLATE: &str = "my-policy";
/// The folder of the examples, and the prefix of those in Rego.
const EXAMPLES: (&str, &str) = ("examples", "rego-");
/// Pattern of test files, which are not shipped.
const TESTS: &str = "*_test.rego";
/// Time limit of a test, which only ends one that hangs: opa's own of 5 seconds is too short for some on a busy machine.
const LIMIT: &str = "10m";

/// What to do with the library, the template and the examples.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// First writes the samples of zeros from the input's schema, and copies the library into the template and the examples.
    #[arg(long)]
    update: bool,
}

/// Results of `opa test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, or could not be run.
    pub(crate) failed: u64,
    /// Tests that are marked as to do (`todo_test_…`).
    pub(crate) skipped: u64,
    /// Name and output of each test that failed.
    pub(crate) failures: BTreeMap<String, String>,
}

impl Counts {
    /// Adds the results in the output of `opa test --verbose`: `data.qosm_test.test_it: PASS (1.2ms)`. Failed tests are printed twice.
    fn add<'a>(&mut self, printed: impl IntoIterator<Item = &'a str>) {
        let verdict = |line: &'a str| {
            let (name, verdict) = line.rsplit_once(": ").filter(|(name, _)| name.starts_with("data."))?;
            Some((name, verdict.split_whitespace().next()?))
        };
        let mut verdicts: BTreeMap<&str, &str> = BTreeMap::new();
        let mut failed = None;
        for line in printed {
            if let Some((name, verdict)) = verdict(line) {
                verdicts.insert(name, verdict);
                failed = matches!(verdict, "FAIL" | "ERROR").then_some(name);
            } else if !line.starts_with(' ') {
                failed = None;
            }
            if let Some(name) = failed {
                let output = self.failures.entry(name.to_owned()).or_default();
                if !output.lines().any(|known| known == line) {
                    *output += &format!("{line}\n");
                }
            }
        }
        for verdict in verdicts.into_values() {
            match verdict {
                "PASS" => self.passed += 1,
                "FAIL" | "ERROR" => self.failed += 1,
                "SKIPPED" => self.skipped += 1,
                _ => {}
            }
        }
    }
}

/// The folder of the bundles after a build.
pub(crate) fn bundles(workspace: &Workspace) -> PathBuf {
    workspace.target().join("rego")
}

/// Builds and tests everything.
///
/// # Errors
///
/// As [`build`] and [`test()`].
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if args.update {
        update(workspace)?;
    }
    build(workspace)?;
    let counts = test(workspace)?;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(if counts.failed == 0 && counts.skipped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the template and the examples to `rego/<name>.tar.gz` in the target directory.
///
/// # Errors
///
/// The errors of opa.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    command::heading("Rego policies");
    let folder = bundles(workspace);
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    if fs::read_to_string(workspace.root().join(ZEROS)).ok() != Some(zeros(workspace)?) {
        bail!("{ZEROS} does not follow from {SCHEMA}: {UPDATE}");
    }
    for project in projects(workspace)? {
        has_library(workspace, &project)?;
        let name = match project.file_name().context("a project has no name")? {
            _ if project.ends_with(TEMPLATE) => NAME_OF_TEMPLATE.as_ref(),
            name => name,
        };
        let bundle = folder.join(name).with_extension("tar.gz");
        let mut build = opa::command(workspace)?;
        build.args(["build", "--bundle", ".", "--target", "wasm", "--ignore", TESTS, "--output"]).arg(&bundle);
        command::run(build.current_dir(&project))?;
    }
    Ok(())
}

/// Checks the format and types, and runs the tests, of the library, the template and the examples.
///
/// # Errors
///
/// If a file is not formatted or does not compile. Failing tests are only counted.
pub(crate) fn test(workspace: &Workspace) -> Result<Counts> {
    let mut counts = Counts::default();
    for folder in [workspace.root().join(SDK)].into_iter().chain(projects(workspace)?) {
        let shown = folder.strip_prefix(workspace.root()).unwrap_or(&folder).display().to_string();
        command::heading(&format!("Rego of {shown}"));
        let opa = |words: &[&str]| -> Result<_> {
            let mut opa = opa::command(workspace)?;
            opa.args(words).current_dir(&folder);
            Ok(opa)
        };
        let unformatted = command::output(&mut opa(&["fmt", "--list", "."])?)?;
        if !unformatted.trim().is_empty() {
            bail!("not formatted in {shown}: {}: run `opa fmt -w .` there", unformatted.trim().replace('\n', ", "));
        }
        let mut check = opa(&["check", "--strict", "--bundle", "."])?;
        command::run(check.arg("--schema").arg(workspace.root().join(SCHEMA)))?;
        let (passed, failed) = (counts.passed, counts.failed);
        let mut printed = Vec::new();
        let status = command::lines(&mut opa(&["test", "--verbose", "--bundle", "--timeout", LIMIT, "."])?, |line| {
            println!("{line}");
            printed.push(line.to_owned());
        })?;
        counts.add(printed.iter().map(String::as_str));
        if counts.passed == passed {
            bail!("no test of {shown} passed: none was found, or nothing there compiles");
        }
        if !status.success() && counts.failed == failed {
            counts.failed += 1;
        }
    }
    Ok(counts)
}

/// The folders of the template and the examples.
fn projects(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let (folder, prefix) = EXAMPLES;
    let folder = workspace.root().join(folder);
    let entries = fs::read_dir(&folder).with_context(|| format!("{} cannot be listed", folder.display()))?;
    let is_rego = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) && path.is_dir()
    };
    let mut projects: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_rego).collect();
    projects.sort();
    if projects.is_empty() {
        bail!("{} holds no folder whose name begins with `{prefix}`", folder.display());
    }
    projects.insert(0, workspace.root().join(TEMPLATE));
    Ok(projects)
}

/// The content of a project's `lib/qosm`: name and source of each file.
fn library(workspace: &Workspace) -> Result<BTreeMap<OsString, PathBuf>> {
    let folder = workspace.root().join(LIBRARY);
    let entries = fs::read_dir(&folder).with_context(|| format!("{} cannot be listed", folder.display()))?;
    let files = entries.filter_map(Result::ok).map(|entry| entry.path()).chain([workspace.root().join(SCHEMA)]);
    Ok(files.filter_map(|file| Some((file.file_name()?.to_owned(), file))).collect())
}

/// Checks that a project's `lib/qosm` is equal to the library. Projects have copies, because users copy projects.
fn has_library(workspace: &Workspace, project: &Path) -> Result<()> {
    let folder = project.join("lib/qosm");
    let read = |file: &Path| fs::read(file).with_context(|| format!("{} cannot be read", file.display()));
    let library = library(workspace)?;
    for (name, file) in &library {
        let copy = folder.join(name);
        if fs::read(&copy).ok() != Some(read(file)?) {
            bail!("{} is not {}: {UPDATE}", copy.display(), file.display());
        }
    }
    let entries = fs::read_dir(&folder).with_context(|| format!("{} cannot be listed", folder.display()))?;
    match entries.filter_map(Result::ok).find(|entry| !library.contains_key(&entry.file_name())) {
        Some(entry) => bail!("{} is no part of the library: {UPDATE}", entry.path().display()),
        None => Ok(()),
    }
}

/// The package of samples in which every counter is 0: policies' tests build on them, and a new counter needs nothing there.
fn zeros(workspace: &Workspace) -> Result<String> {
    let file = workspace.root().join(SCHEMA);
    let text = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    let schema: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    let mut package = "# METADATA\n# title: Zeros\n# description: Samples in which every counter is 0. Written from \
                       input.schema.json.\npackage qosm.lib.zeros\n"
        .to_owned();
    for column in ["cpu", "memory"] {
        let sample = &schema["properties"][column]["additionalProperties"];
        let names = sample["required"].as_array().with_context(|| format!("{SCHEMA} has no counters of `{column}`"))?;
        package.push_str(&format!("\n{column} := {{\n"));
        for name in names {
            package.push_str(&format!("\t{name}: 0,\n"));
        }
        package.push_str("}\n");
    }
    Ok(package)
}

/// Writes the samples of zeros, and copies the library into every project.
fn update(workspace: &Workspace) -> Result<()> {
    let file = workspace.root().join(ZEROS);
    fs::write(&file, zeros(workspace)?).with_context(|| format!("{} cannot be written", file.display()))?;
    let library = library(workspace)?;
    for project in projects(workspace)? {
        let folder = project.join("lib/qosm");
        let unwritable = || format!("{} cannot be written", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(unwritable)?;
        }
        fs::create_dir_all(&folder).with_context(unwritable)?;
        for (name, file) in &library {
            fs::copy(file, folder.join(name)).with_context(unwritable)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_as_opa_prints_them() {
        let mut counts = Counts::default();
        counts.add([
            "FAILURES",
            "data.qosm_test.test_it_lets_go: FAIL (210.3µs)",
            "  policy_test.rego:7:",
            "    count(settings) == 1",
            "SUMMARY",
            "policy_test.rego:",
            "data.qosm_test.test_it_holds: PASS (1.234567ms)",
            "data.qosm_test.test_it_lets_go: FAIL (210.3µs)",
            "data.qosm_test.todo_test_later: SKIPPED",
            "data.qosm_test.test_what_is_this: ERROR (1µs)",
            "PASS: 1/3",
        ]);
        let outputs = [
            (
                "data.qosm_test.test_it_lets_go",
                "data.qosm_test.test_it_lets_go: FAIL (210.3µs)\n  policy_test.rego:7:\n    count(settings) == 1\n",
            ),
            ("data.qosm_test.test_what_is_this", "data.qosm_test.test_what_is_this: ERROR (1µs)\n"),
        ];
        let failures = outputs.map(|(name, output)| (name.to_owned(), output.to_owned())).into();
        assert_eq!(counts, Counts { passed: 1, failed: 2, skipped: 1, failures });
    }
}
