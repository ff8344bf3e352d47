//! `qosm policy lint`: finds parts of a policy that will cause trouble for its operators.

mod cases;
mod description;

use std::fmt;

use qosm_build::Project;
use qosm_engine::{Engine, Module};
use qosm_model::protocol::Description;
use qosm_open_module::{DEFAULTS, default_dir};
use qosm_terminal::{Answer, Output, print};
use serde::Serialize;
use wasm_metadata::Payload;

use crate::args::{LintArgs, SubjectArgs};
use crate::subject::Subject;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// A node refuses the policy.
    Error,
    /// The policy causes problems at run time.
    Warning,
    /// The policy could be improved.
    Hint,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Hint => "hint",
        })
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    level: Level,
    /// Name of the rule, for searching.
    rule: &'static str,
    /// The problem and where it is.
    what: String,
    /// How to fix it.
    help: String,
}

impl Finding {
    fn new(level: Level, rule: &'static str, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { level, rule, what: what.into(), help: help.into() }
    }
}

/// The policy that is checked.
struct Looked<'a> {
    engine: &'a Engine,
    module: &'a Module,
    description: &'a Description,
    /// Where the module comes from.
    place: &'a str,
    wasm: &'a [u8],
    project: Option<&'a Project>,
}

pub(crate) fn run(args: &LintArgs) -> anyhow::Result<Answer> {
    let subject = Subject::open(&args.subject)?;
    let engine = Engine::new()?;
    let (module, description) = match subject.load(&engine) {
        Ok(loaded) => loaded,
        Err(error) => {
            let what = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
            let help = "build it anew, or look at what `qosm policy inspect` says of it";
            return show(
                &subject.place,
                &[Finding::new(Level::Error, "does-not-load", what, help)],
                args.output.output,
            );
        }
    };
    let looked = Looked {
        engine: &engine,
        module: &module,
        description: &description,
        place: &subject.place,
        wasm: &subject.wasm,
        project: subject.project.as_ref(),
    };
    let mut findings = description::look(&looked);
    findings.extend(name(&looked, &args.subject));
    findings.extend(labels(&looked));
    findings.extend(types(&looked)?);
    match crate::test::cases(&subject, args.cases.as_deref()) {
        Ok(folder) => findings.extend(cases::look(&looked, &folder)),
        Err(_) => eprintln!("note: without its cases (--cases) nothing is said about grants and reasons"),
    }
    findings.sort();
    show(&subject.place, &findings, args.output.output)
}

fn show(place: &str, findings: &[Finding], output: Output) -> anyhow::Result<Answer> {
    match output {
        Output::Json => print::json(&serde_json::json!({"file": place, "findings": findings}))?,
        Output::Table => {
            let line =
                |Finding { level, rule, what, help }: &Finding| format!("{level}: {what} [{rule}]\n  help: {help}\n");
            let text: String = findings.iter().map(line).collect();
            print::text(&if text.is_empty() { format!("{place}: nothing to say\n") } else { text })?;
        }
    }
    let is_fine = findings.iter().all(|finding| finding.level == Level::Hint);
    Ok(if is_fine { Answer::Good } else { Answer::Bad })
}

/// Checks whether the policy's name can be confused with another one.
fn name(looked: &Looked<'_>, args: &SubjectArgs) -> Vec<Finding> {
    let Description { name, version, .. } = looked.description;
    let mut findings = Vec::new();
    let folder = default_dir(args.module_dir.as_deref());
    let is_that_module = || std::fs::read(folder.join(format!("{name}.wasm"))).is_ok_and(|wasm| wasm == looked.wasm);
    if DEFAULTS.contains(&name.as_str()) && !is_that_module() {
        findings.push(Finding::new(
            Level::Warning,
            "name-of-a-default-module",
            format!("it calls itself `{name}`, as a default module does"),
            "choose another name in `describe`; an operator can still put it in that policy's place",
        ));
    }
    let Some(project) = looked.project else { return findings };
    if project.name() != name {
        findings.push(Finding::new(
            Level::Hint,
            "two-names",
            format!("the project is called `{}`, and its module `{name}`", project.name()),
            "give both the same name, so that one leads to the other",
        ));
    }
    if let Some(own) = project.version().filter(|own| own != version) {
        findings.push(Finding::new(
            Level::Warning,
            "two-versions",
            format!("the project has version {own}, and its module says {version}"),
            "in Rust say `env!(\"CARGO_PKG_VERSION\")` in `describe`",
        ));
    }
    findings
}

/// Errors of OPA's checkers, which `opa build` does not run: a misspelt field of `input` is undefined, and sets nothing.
fn types(looked: &Looked<'_>) -> anyhow::Result<Vec<Finding>> {
    let Some(project) = looked.project else { return Ok(Vec::new()) };
    let help = "the reference of Rego lists the fields of `input`; see also `opa check --strict --bundle --schema \
                lib/qosm/input.schema.json .`";
    let finding = |what: String| Finding::new(Level::Warning, "opa-check", what, help);
    Ok(project.check()?.into_iter().map(finding).collect())
}

/// Checks the labels about authors and licence. Only components have sections for them.
fn labels(looked: &Looked<'_>) -> Vec<Finding> {
    let Ok(payload) = Payload::from_binary(looked.wasm) else { return Vec::new() };
    let metadata = payload.metadata();
    let missing = [
        ("licenses", metadata.licenses.is_none(), "its licence"),
        ("source", metadata.source.is_none(), "where its source is"),
    ];
    let finding = |(flag, _, what): (&str, bool, &str)| {
        Finding::new(
            Level::Hint,
            "not-labelled",
            format!("the module does not say {what}"),
            format!("before it is pushed: `qosm policy annotate {} --{flag} …`", looked.place),
        )
    };
    missing.into_iter().filter(|(_, is_missing, _)| *is_missing).map(finding).collect()
}
