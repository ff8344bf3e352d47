//! `qosm plan`: what would be written.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_agent::facts::Facts;
use qosm_agent::replay::Replay;
use qosm_agent::report::Decision;
use qosm_agent::{Agent, LoadedPolicy, Mode, Now, Parts, Sources, load};
use qosm_cluster::{Folder, Objects};
use qosm_engine::Engine;

use crate::args::{Output, PlanArgs};
use crate::print::{self, Usage};
use crate::{Answer, host, modules};

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Answer> {
    let facts = args.facts.as_deref().map(read_facts).transpose()?;
    let mut files = Vec::new();
    for path in args.pods.iter().chain(&args.config) {
        files.extend(manifests(path)?);
    }
    let objects = Folder::open(None, files)?.poll().unwrap_or_default();
    let engine = Engine::new()?;
    let said = facts.as_ref().map(|facts| facts.policies.clone()).unwrap_or_default();
    let policies = load_all(&engine, args, said)?;
    let (decisions, refused, problems, failing) = match facts {
        Some(facts) => {
            let mut replay = Replay::new(&facts, objects, engine, policies, Mode::Plan)?;
            let outcome = replay.open();
            (outcome.decisions, outcome.refused, outcome.problems, outcome.failing.into_iter().collect())
        }
        None => on_this_host(args, objects, engine, policies)?,
    };
    match args.output.output {
        Output::Json => print::json(&decisions)?,
        Output::Table => print::text(&table(&decisions))?,
    }
    for line in not_possible(&refused) {
        eprintln!("{line}");
    }
    for problem in &problems {
        eprintln!("problem: {problem}");
    }
    for (policy, error) in &failing {
        eprintln!("error: policy `{policy}` does not run: {error}");
    }
    Ok(if problems.is_empty() && failing.is_empty() { Answer::Good } else { Answer::Bad })
}

type Planned = (Vec<Decision>, Vec<Decision>, Vec<String>, Vec<(String, String)>);

fn on_this_host(
    args: &PlanArgs,
    objects: Objects,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
) -> anyhow::Result<Planned> {
    let mut agent = Agent::new(Parts {
        host: host::open(&args.host)?,
        engine,
        policies,
        unloaded: Vec::new(),
        config: qosm_agent::config::AgentConfig::default(),
        mode: Mode::Plan,
        make_cgroups: false,
        journal: None,
        metrics: std::sync::Arc::default(),
    })?;
    let sources = Sources::from(objects);
    agent.update(sources, Now::default());
    let step = agent.step(Now::default());
    let failing =
        agent.policy_reports().into_iter().filter_map(|policy| Some((policy.policy, policy.error?))).collect();
    Ok((step.decisions, step.refused, agent.problems(), failing))
}

fn load_all(
    engine: &Engine,
    args: &PlanArgs,
    said: Vec<qosm_agent::config::PolicyConfig>,
) -> anyhow::Result<Vec<LoadedPolicy>> {
    load_entries(engine, &args.modules, said)
}

/// Loads what the flags and a document say; any module that does not load is the end of it.
pub(crate) fn load_entries(
    engine: &Engine,
    args: &crate::args::ModuleArgs,
    said: Vec<qosm_agent::config::PolicyConfig>,
) -> anyhow::Result<Vec<LoadedPolicy>> {
    let entries = modules::entries(args, said)?;
    let cache = modules::personal_cache();
    let compiler = modules::compiler()?;
    let dir = modules::default_dir(args.module_dir.as_deref());
    entries
        .iter()
        .map(|entry| load::load(engine, entry, &dir, cache.as_ref(), &compiler).map_err(anyhow::Error::from))
        .collect()
}

fn read_facts(path: &Path) -> anyhow::Result<Facts> {
    let text = read(path)?;
    serde_saphyr::from_str(&text).map_err(|error| Usage(format!("{}: {error}", path.display())).into())
}

/// Reads a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
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
