//! `qosm plan`: what would be written.

use std::path::PathBuf;

use qosm_agent::config::{AgentConfig, PolicyConfig};
use qosm_agent::replay::event_line;
use qosm_agent::{Agent, AgentOptions, LoadedPolicy, Mode, Now, Sources, load};
use qosm_cluster::{Folder, Objects, Source as _};
use qosm_engine::Engine;
use qosm_host::BurstRule;
use qosm_model::knob::Knob;
use qosm_model::lease;
use qosm_open_module::{compiler, default_dir, personal_cache};
use qosm_replay::{Planned, RowOrder, of_facts, on_facts, read_facts};
use qosm_terminal::{Answer, document};

use crate::args::PlanArgs;
use crate::{host, modules};

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Answer> {
    let facts = args.facts.as_deref().map(read_facts).transpose()?;
    let paths = args.pods.iter().chain(&args.config).cloned().collect();
    let objects = Folder::open(None, paths)?.poll().unwrap_or_default();
    let engine = Engine::new()?;
    let mut config: AgentConfig = args.agent_config.as_deref().map(document::read).transpose()?.unwrap_or_default();
    let said = match &facts {
        Some(facts) => facts.policies.clone(),
        None => std::mem::take(&mut config.policies),
    };
    let policies = load_entries(&engine, &args.modules, said)?;
    let planned = match (&args.facts, facts) {
        (Some(path), Some(facts)) => {
            let planned = on_facts(&facts, objects, engine, policies);
            planned.map_err(|error| of_facts(&document::shown(path), error))?
        }
        _ => on_this_host(args, objects, engine, policies, config)?,
    };
    planned.show(args.output.output, if args.in_order { RowOrder::InOrder } else { RowOrder::ByPod })
}

/// Remark for a kernel whose rule for CFS bursts is unknown: the agent learns it at its first write, which a plan does not make.
const BOUND_UNKNOWN: &str = "whether this kernel takes a CFS burst above the quota is not known before something is written (the mainline kernel \
                             does not): where it does not, the agent caps each burst at the quota";

fn on_this_host(
    args: &PlanArgs,
    objects: Objects,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
    config: AgentConfig,
) -> anyhow::Result<Planned> {
    let host = host::open(&args.host)?;
    let is_bound_known = host.facts().burst_rule != BurstRule::Unknown;
    let mut agent = Agent::new(AgentOptions {
        host,
        engine,
        policies,
        load_failed: Vec::new(),
        config,
        mode: Mode::Plan,
        create_cgroups: false,
        journal: None,
        metrics: std::sync::Arc::default(),
    })?;
    let sources = Sources::from(objects);
    let now = Now { wall: lease::Timestamp(jiff::Timestamp::now().as_millisecond()), ..Now::default() };
    agent.update(sources, now);
    let step = agent.step(now);
    let failing =
        agent.policy_reports().into_iter().filter_map(|policy| Some((policy.policy, policy.error?))).collect();
    let mut notes = agent.notes(now);
    if !is_bound_known && step.decisions.iter().any(|decision| decision.knob == Knob::CfsBurst.to_string()) {
        notes.push(BOUND_UNKNOWN.to_owned());
    }
    Ok(Planned {
        decisions: step.decisions,
        refused: step.refused,
        remarks: agent.remarks(),
        problems: agent.problems(),
        failing,
        events: step.events.into_iter().map(event_line).collect(),
        migrations: step.migrations,
        classes: step.classes,
        resources: step.resources,
        evictions: step.evictions,
        shadows: step.shadows,
        notes,
    })
}

/// Loads the policies that flags and a document name; fails if one does not load.
pub(crate) fn load_entries(
    engine: &Engine,
    args: &crate::args::ModuleArgs,
    said: Vec<qosm_agent::config::PolicyConfig>,
) -> anyhow::Result<Vec<LoadedPolicy>> {
    let loader = Loader::new(engine, args)?;
    let mut args = args.clone();
    for text in &mut args.policies {
        if modules::is_file(text) {
            // An entry of a document has the module's own name.
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
        Ok(Self { engine, cache: personal_cache(), compiler: compiler(), dir: default_dir(args.module_dir.as_deref()) })
    }

    pub(crate) fn load(&self, entry: &PolicyConfig) -> anyhow::Result<LoadedPolicy> {
        let artifacts = &mut load::NoArtifacts;
        Ok(load::load(self.engine, entry, &self.dir, artifacts, self.cache.as_ref(), &self.compiler)?)
    }
}
