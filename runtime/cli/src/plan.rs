//! `qosm plan`: what would be written.

use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_agent::config::{AgentConfig, PolicyConfig};
use qosm_agent::facts::Facts;
use qosm_agent::replay::Replay;
use qosm_agent::report::{ClassDecision, Decision, MigrationDecision};
use qosm_agent::{Agent, LoadedPolicy, Mode, Now, Parts, Sources, load};
use qosm_cluster::{Folder, Objects, Source as _};
use qosm_engine::Engine;
use qosm_model::lease;

use crate::args::{Output, PlanArgs};
use crate::print::Usage;
use crate::{Answer, document, host, modules, print};

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Answer> {
    let facts = args.facts.as_deref().map(read_facts).transpose()?;
    let mut files = Vec::new();
    for path in args.pods.iter().chain(&args.config) {
        files.extend(manifests(path)?);
    }
    let objects = Folder::open(None, files)?.poll().unwrap_or_default();
    let engine = Engine::new()?;
    let mut config: AgentConfig = args.agent_config.as_deref().map(document::read).transpose()?.unwrap_or_default();
    let said = match &facts {
        Some(facts) => facts.policies.clone(),
        None => std::mem::take(&mut config.policies),
    };
    let policies = load_entries(&engine, &args.modules, said)?;
    let planned = match facts {
        Some(facts) => on_facts(&facts, objects, engine, policies)?,
        None => on_this_host(args, objects, engine, policies, config)?,
    };
    show(planned, args.output.output)
}

/// A node in a file; a plan is of now unless the file says otherwise.
pub(crate) fn read_facts(path: &Path) -> Result<Facts, Usage> {
    let mut facts: Facts = document::read(path)?;
    facts.time.get_or_insert_with(jiff::Timestamp::now);
    Ok(facts)
}

/// Prints what would be written, and tells what else there is to say.
pub(crate) fn show(planned: Planned, output: Output) -> anyhow::Result<Answer> {
    let Planned { decisions, refused, problems, failing, events, notes } = planned;
    match output {
        Output::Json => print::json(&decisions)?,
        Output::Table => print::text(&table(&decisions))?,
    }
    for note in &notes {
        eprintln!("note: {note}");
    }
    for line in not_possible(&refused) {
        eprintln!("{line}");
    }
    for event in &events {
        eprintln!("{event}");
    }
    for problem in &problems {
        eprintln!("problem: {problem}");
    }
    for (policy, error) in &failing {
        eprintln!("error: policy `{policy}` does not run: {error}");
    }
    Ok(if problems.is_empty() && failing.is_empty() { Answer::Good } else { Answer::Bad })
}

/// Pages that would be moved, and classes of shares, are no knobs: they are told beside the table.
fn notes(migrations: Vec<MigrationDecision>, classes: &[ClassDecision], notes: Vec<String>) -> Vec<String> {
    let moved = migrations.into_iter().map(|migration| match &migration.error {
        None => format!("{migration} would be moved by {}: {}", migration.policy, migration.reason),
        Some(error) => format!("{migration} would not be moved for {}: {error}", migration.policy),
    });
    let classes = classes.iter().map(|class| format!("{class} would be set by {}: {}", class.policy, class.reason));
    moved.chain(classes).chain(notes).collect()
}

/// What a pod's owner would be told.
fn told(pod: &str, reason: &str, message: &str) -> String {
    format!("event {pod} {reason}: {message}")
}

/// What would be written, and what would not.
pub(crate) struct Planned {
    pub(crate) decisions: Vec<Decision>,
    refused: Vec<Decision>,
    problems: Vec<String>,
    failing: Vec<(String, String)>,
    events: Vec<String>,
    notes: Vec<String>,
}

/// The plan for a node in a file.
pub(crate) fn on_facts(
    facts: &Facts,
    objects: Objects,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
) -> anyhow::Result<Planned> {
    let mut replay = Replay::new(facts, objects, engine, policies, Mode::Plan)?;
    let outcome = replay.open();
    Ok(Planned {
        decisions: outcome.decisions,
        refused: outcome.refused,
        problems: outcome.problems,
        failing: outcome.failing.into_iter().collect(),
        events: outcome.events.iter().map(|event| told(&event.pod, &event.reason, &event.message)).collect(),
        notes: notes(outcome.migrations, &outcome.classes, replay.notes()),
    })
}

fn on_this_host(
    args: &PlanArgs,
    objects: Objects,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
    config: AgentConfig,
) -> anyhow::Result<Planned> {
    let mut agent = Agent::new(Parts {
        host: host::open(&args.host)?,
        engine,
        policies,
        unloaded: Vec::new(),
        config,
        mode: Mode::Plan,
        make_cgroups: false,
        journal: None,
        metrics: std::sync::Arc::default(),
    })?;
    let sources = Sources::from(objects);
    let now = Now { wall: lease::Timestamp(jiff::Timestamp::now().as_millisecond()), ..Now::default() };
    agent.update(sources, now);
    let step = agent.step(now);
    let failing =
        agent.policy_reports().into_iter().filter_map(|policy| Some((policy.policy, policy.error?))).collect();
    Ok(Planned {
        decisions: step.decisions,
        refused: step.refused,
        problems: agent.problems(),
        failing,
        events: step.events.iter().map(|event| told(&event.pod, &event.reason, &event.message)).collect(),
        notes: notes(step.migrations, &step.classes, agent.notes(now)),
    })
}

/// Loads what the flags and a document say; any module that does not load is the end of it.
pub(crate) fn load_entries(
    engine: &Engine,
    args: &crate::args::ModuleArgs,
    said: Vec<qosm_agent::config::PolicyConfig>,
) -> anyhow::Result<Vec<LoadedPolicy>> {
    let loader = Loader::new(engine, args)?;
    let mut args = args.clone();
    for text in &mut args.policies {
        if modules::is_file(text) {
            // The name that the module gives itself is the one that a document's entry has.
            let name = loader.load(&PolicyConfig::shadow(text, text))?.description.name;
            *text = format!("{name}={text}");
        }
    }
    modules::entries(&args, said)?.iter().map(|entry| loader.load(entry)).collect()
}

/// Loads modules for one command.
pub(crate) struct Loader<'a> {
    engine: &'a Engine,
    cache: Option<qosm_engine::ModuleCache>,
    compiler: qosm_engine::Compiler,
    dir: PathBuf,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(engine: &'a Engine, args: &crate::args::ModuleArgs) -> anyhow::Result<Self> {
        Ok(Self {
            engine,
            cache: modules::personal_cache(),
            compiler: modules::compiler()?,
            dir: modules::default_dir(args.module_dir.as_deref()),
        })
    }

    pub(crate) fn load(&self, entry: &PolicyConfig) -> anyhow::Result<LoadedPolicy> {
        let shelf = &mut load::NoShelf;
        Ok(load::load(self.engine, entry, &self.dir, shelf, self.cache.as_ref(), &self.compiler)?)
    }
}

/// The manifests of a folder, in the order of their names; or the one file.
fn manifests(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))? {
        let path = entry?.path();
        let name = path.extension().and_then(|extension| extension.to_str());
        if matches!(name, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// One line a knob: on most hosts the same file is missing everywhere.
fn not_possible(refused: &[Decision]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut by_knob: std::collections::BTreeMap<(&str, &str), Vec<&Decision>> = std::collections::BTreeMap::new();
    for decision in refused {
        by_knob.entry((&decision.knob, &decision.policy)).or_default().push(decision);
    }
    for ((knob, policy), decisions) in by_knob {
        let subjects: Vec<_> =
            decisions.iter().map(|decision| format!("{} ({})", decision.subject(), decision.value)).collect();
        let why = decisions.first().and_then(|decision| decision.error.as_deref()).unwrap_or_default();
        lines.push(format!("not possible: {knob} of {}, wanted by {policy}: {why}", subjects.join(", ")));
    }
    lines
}

fn table(decisions: &[Decision]) -> String {
    if decisions.is_empty() {
        return "nothing would be written\n".to_owned();
    }
    let rows = decisions.iter().map(|decision| {
        vec![
            decision.level.clone(),
            decision.subject(),
            if decision.support == "emulated" {
                format!("{} (emulated)", decision.knob)
            } else {
                decision.knob.clone()
            },
            decision.current.map_or_else(|| "?".to_owned(), |value| value.to_string()),
            decision.value.to_string(),
            decision.policy.clone(),
            match &decision.adjusted {
                Some(adjusted) => format!("{} ({} wanted: {})", decision.reason, adjusted.wanted, adjusted.why),
                None => decision.reason.clone(),
            },
        ]
    });
    print::table(&["level", "subject", "knob", "current", "value", "policy", "reason"], rows)
}
