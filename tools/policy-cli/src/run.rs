//! `qosm policy run`: runs a policy on a node in a file, with all grants that it imports.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use qosm_agent::config::PolicyConfig;
use qosm_agent::load::ModuleOrigin;
use qosm_agent::module_reference::ModuleReference;
use qosm_agent::{Checked, LoadedPolicy};
use qosm_cluster::Objects;
use qosm_engine::{Engine, Form, Reach};
use qosm_replay::{Recording, RowOrder, on_facts, play, read_facts};
use qosm_terminal::{Answer, Usage, document, log};

use crate::args::RunArgs;
use crate::subject::Subject;

/// The default node of a project.
const NODE: &str = "recordings/node.yaml";

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    log::modules();
    let subject = Subject::open(&args.subject)?;
    let inputs = args.inputs.as_deref().map(Inputs::new).transpose()?.map(Arc::new);
    let engine = match &inputs {
        Some(inputs) => {
            let inputs = Arc::clone(inputs);
            Engine::with_input_observer(Box::new(move |input| inputs.write(input)))?
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
        return play(&facts, recording, engine.clone(), vec![policy], args.output.output);
    }
    let facts = read_facts(&facts(args.facts.as_deref(), subject)?)?;
    let policy = policy(&facts.policies)?;
    on_facts(&facts, Objects::default(), engine.clone(), vec![policy])?.show(args.output.output, RowOrder::ByPod)
}

/// Writes the `input` of each evaluation to a folder.
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

    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{number}.json"))
    }

    fn write(&self, input: &str) {
        let number = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        let file = self.file(number);
        if let Err(error) = std::fs::write(&file, input) {
            // Only the first error is kept; a watcher cannot end an evaluation.
            let _ = self.error.set(anyhow::Error::new(error).context(format!("cannot write {}", file.display())));
        }
    }

    /// Removes the inputs that a longer run left. Fails if an input could not be written.
    fn check(&self) -> anyhow::Result<()> {
        if let Some(error) = self.error.get() {
            bail!("{error:#}");
        }
        let written = self.written.load(Ordering::Relaxed);
        for file in (written + 1..).map(|number| self.file(number)).take_while(|file| file.is_file()) {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        eprintln!("{written} inputs are in {}", self.folder.display());
        Ok(())
    }
}

/// The node in `said`, else the project's own.
fn facts(said: Option<&Path>, subject: &Subject) -> Result<PathBuf, Usage> {
    let own = subject.project.as_ref().map(|project| project.folder().join(NODE)).filter(|path| path.is_file());
    said.map(Path::to_path_buf).or(own).ok_or_else(|| {
        Usage(format!("name a node with --facts or a recording with --recording; a project may have its own in {NODE}"))
    })
}

/// The subject as the only policy, with the file's entry of its name as configuration, and granted all that it imports.
fn load(args: &RunArgs, subject: &Subject, engine: &Engine, entries: &[PolicyConfig]) -> anyhow::Result<LoadedPolicy> {
    let (module, description) = subject.load(engine)?;
    if args.inputs.is_some() && module.form() != Form::Rego {
        bail!(Usage("--inputs is for policies in Rego: a component asks for what it wants to see".to_owned()));
    }
    let known = entries.iter().find(|entry| entry.name == description.name).cloned();
    let mut entry = known.unwrap_or_else(|| PolicyConfig::builtin(&description.name));
    let imports = module.imports().iter().filter(|import| !import.always_granted()).map(ToString::to_string);
    let mut grants: Vec<String> =
        imports.chain(module.needed_reach(&description).iter().map(ToString::to_string)).collect();
    // On a node, the operator decides about grants; here no workload is at risk.
    let shown = if grants.is_empty() { "nothing".to_owned() } else { grants.join(", ") };
    eprintln!("{} {} is granted what it imports: {shown}", description.name, description.version);
    // A component cannot announce settings of tiers in advance; grant them, so that the output shows them.
    if module.form() == Form::Component && !grants.iter().any(|grant| grant == Reach::Tiers.as_str()) {
        grants.push(Reach::Tiers.to_string());
    }
    entry.module = Some(subject.place.clone());
    entry.verification = None;
    entry.grants = Some(grants);
    if let Some(config) = &args.config {
        entry.config = document::object(config, "--config")?;
    }
    let origin = ModuleOrigin { reference: ModuleReference::File(subject.place.clone().into()), artifact: None };
    let checked = Arc::new(Checked::of(&entry, &description));
    Ok(LoadedPolicy { config: entry, module, description, origin, checked })
}
