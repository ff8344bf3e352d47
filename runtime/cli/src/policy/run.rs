//! `qosm policy run`: a policy on a node in a file, with all that it imports.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use qosm_agent::LoadedPolicy;
use qosm_agent::config::PolicyConfig;
use qosm_agent::load::ModuleOrigin;
use qosm_agent::module_reference::ModuleReference;
use qosm_cluster::Objects;
use qosm_engine::{Engine, Form};

use super::subject::Subject;
use crate::args::RunArgs;
use crate::print::Usage;
use crate::replay::Recording;
use crate::{Answer, modules, plan, replay};

/// The node that a project is tried on.
const NODE: &str = "recordings/node.yaml";

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    crate::agent::log_modules();
    let subject = Subject::open(&args.subject)?;
    let inputs = args.inputs.as_deref().map(Inputs::new).transpose()?.map(Arc::new);
    let engine = match &inputs {
        Some(inputs) => {
            let inputs = Arc::clone(inputs);
            Engine::watched_by(Box::new(move |input| inputs.write(input)))?
        }
        None => Engine::new()?,
    };
    let answer = played(args, &subject, &engine)?;
    match inputs {
        Some(inputs) => inputs.check().map(|()| answer),
        None => Ok(answer),
    }
}

fn played(args: &RunArgs, subject: &Subject, engine: &Engine) -> anyhow::Result<Answer> {
    let policy = |entries: &[PolicyConfig]| load(args, subject, engine, entries);
    if let Some(recording) = &args.recording {
        let (facts, recording) = Recording::open(recording)?;
        let policy = policy(&facts.policies)?;
        return replay::show(&facts, recording, engine.clone(), vec![policy], args.output.output);
    }
    let facts = plan::read_facts(&facts(args.facts.as_deref(), subject)?)?;
    let policy = policy(&facts.policies)?;
    plan::show(plan::on_facts(&facts, Objects::default(), engine.clone(), vec![policy])?, args.output.output)
}

/// A folder in which each evaluation's `input` is kept.
struct Inputs {
    folder: PathBuf,
    written: AtomicUsize,
    error: OnceLock<anyhow::Error>,
}

impl Inputs {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder: folder.to_path_buf(), written: AtomicUsize::new(0), error: OnceLock::new() })
    }

    fn write(&self, input: &str) {
        let number = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        let file = self.folder.join(format!("{number}.json"));
        if let Err(error) = std::fs::write(&file, input) {
            // The first tells it; whoever looks on cannot end an evaluation.
            let _ = self.error.set(anyhow::Error::new(error).context(format!("cannot write {}", file.display())));
        }
    }

    /// Whether all of it was written.
    fn check(&self) -> anyhow::Result<()> {
        if let Some(error) = self.error.get() {
            bail!("{error:#}");
        }
        eprintln!("{} inputs are in {}", self.written.load(Ordering::Relaxed), self.folder.display());
        Ok(())
    }
}

/// The node: as said, else the one that the project has.
fn facts(said: Option<&Path>, subject: &Subject) -> Result<PathBuf, Usage> {
    let own = subject.project.as_ref().map(|project| project.folder().join(NODE)).filter(|path| path.is_file());
    said.map(Path::to_path_buf).or(own).ok_or_else(|| {
        Usage(format!("name a node with --facts or a recording with --recording; a project may have its own in {NODE}"))
    })
}

/// The subject as the one policy that runs, as the file's entry of its name has it, and granted all that it imports.
fn load(args: &RunArgs, subject: &Subject, engine: &Engine, entries: &[PolicyConfig]) -> anyhow::Result<LoadedPolicy> {
    let (module, description) = subject.load(engine)?;
    if args.inputs.is_some() && module.form() != Form::Rego {
        bail!(Usage("--inputs is for policies in Rego: a component asks for what it wants to see".to_owned()));
    }
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
    if let Some(config) = &args.config {
        entry.config = modules::object(config, "--config")?;
    }
    let origin = ModuleOrigin { reference: ModuleReference::File(subject.place.clone().into()), artifact: None };
    Ok(LoadedPolicy { config: entry, module, description, origin })
}
