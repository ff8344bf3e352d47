//! `qosm policy run`: a policy on a node in a file, with all that it imports.

use std::path::{Path, PathBuf};

use qosm_agent::LoadedPolicy;
use qosm_agent::config::PolicyConfig;
use qosm_agent::load::ModuleOrigin;
use qosm_agent::module_reference::ModuleReference;
use qosm_cluster::Objects;
use qosm_engine::Engine;

use super::subject::Subject;
use crate::args::RunArgs;
use crate::print::Usage;
use crate::replay::Recording;
use crate::{Answer, modules, plan, replay};

/// The node that a project is tried on.
const NODE: &str = "recordings/node.yaml";

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    let subject = Subject::open(&args.subject)?;
    let engine = Engine::new()?;
    let policy = |entries: &[PolicyConfig]| load(&subject, &engine, args.config.as_deref(), entries);
    if let Some(recording) = &args.recording {
        let (facts, recording) = Recording::open(recording)?;
        let policy = policy(&facts.policies)?;
        return replay::show(&facts, recording, engine, vec![policy], args.output.output);
    }
    let facts = plan::read_facts(&facts(args.facts.as_deref(), &subject)?)?;
    let policy = policy(&facts.policies)?;
    plan::show(plan::on_facts(&facts, Objects::default(), engine, vec![policy])?, args.output.output)
}

/// The node: as said, else the one that the project has.
fn facts(said: Option<&Path>, subject: &Subject) -> Result<PathBuf, Usage> {
    let own = subject.project.as_ref().map(|project| project.folder().join(NODE)).filter(|path| path.is_file());
    said.map(Path::to_path_buf).or(own).ok_or_else(|| {
        Usage(format!("name a node with --facts or a recording with --recording; a project may have its own in {NODE}"))
    })
}

/// The subject as the one policy that runs, as the file's entry of its name has it, and granted all that it imports.
fn load(
    subject: &Subject,
    engine: &Engine,
    config: Option<&str>,
    entries: &[PolicyConfig],
) -> anyhow::Result<LoadedPolicy> {
    let (module, description) = subject.load(engine)?;
    let known = entries.iter().find(|entry| entry.name == description.name).cloned();
    let mut entry = known.unwrap_or_else(|| PolicyConfig::builtin(&description.name));
    let grants: Vec<String> =
        module.imports().iter().filter(|import| !import.always_granted()).map(ToString::to_string).collect();
    // A node grants what its operator allows; on a laptop nobody is at risk.
    let shown = if grants.is_empty() { "nothing".to_owned() } else { grants.join(", ") };
    eprintln!("{} {} is granted what it imports: {shown}", description.name, description.version);
    entry.module = Some(subject.place.clone());
    entry.verification = None;
    entry.grants = Some(grants);
    if let Some(config) = config {
        entry.config = modules::object(config, "--config")?;
    }
    let origin = ModuleOrigin { reference: ModuleReference::File(subject.place.clone().into()), artifact: None };
    Ok(LoadedPolicy { config: entry, module, description, origin })
}
