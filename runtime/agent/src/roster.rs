//! The roster: which policies run on this node, and the modules behind them.
//!
//! It is made of the operator's entries and of the PolicyModules that select the node. Loading a module may take seconds, where
//! it has to be compiled; so a [`Recruiter`] works on a thread of its own and hands a finished [`Roster`] to the loop.
//!
//! A PolicyModule that cannot be loaded as it stands now leaves the node with what it took last: that is kept in a file, so that a
//! restart, a paused rollout or a broken change does not take a working policy away.

mod checks;
mod choice;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use qosm_cluster::PolicyModule;
use qosm_engine::{Compiler, Engine, Interface, ModuleCache};
use qosm_model::layering::CompiledProtocol;
use qosm_model::pod::Node;
use qosm_model::problem::{Problem, chain};

use self::checks::{check_shadows, warn_of_ties};
use self::choice::{Choice, Taken, choose, entry};
use crate::agent::Unloaded;
use crate::config::PolicyConfig;
use crate::load;
use crate::policy::LoadedPolicy;
use crate::service::Request;
use crate::sources::Sources;

/// What could not be loaded is tried again so often: a file may come late, a compiler may have had no memory.
const TRIED_AGAIN: Duration = Duration::from_secs(60);
/// The file of what PolicyModules were taken.
const TAKEN: &str = "policy-modules.json";

/// The policies of a node.
#[derive(Clone, Default)]
pub struct Roster {
    /// Those that can run.
    pub policies: Vec<Enlisted>,
    /// Those that cannot.
    pub unloaded: Vec<Unloaded>,
    /// What is wrong with the entries and PolicyModules.
    pub problems: Vec<Problem>,
}

impl Roster {
    /// Whether something that was asked for does not run.
    fn is_incomplete(&self) -> bool {
        let was_refused = |enlisted: &Enlisted| enlisted.origin.as_ref().is_some_and(|origin| origin.refused.is_some());
        !self.unloaded.is_empty() || self.policies.iter().any(was_refused)
    }
}

/// A policy that can run.
#[derive(Clone)]
pub struct Enlisted {
    /// Its entry and its module.
    pub policy: LoadedPolicy,
    /// The PolicyModule that it comes from.
    pub origin: Option<Origin>,
}

/// The PolicyModule that a policy comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The generation that runs.
    pub generation: i64,
    /// A newer one that was not taken, and why.
    pub refused: Option<(i64, String)>,
}

/// Loads what a roster names.
pub struct Recruiter {
    engine: Engine,
    entries: Vec<PolicyConfig>,
    default_modules: PathBuf,
    cache: ModuleCache,
    compiler: Compiler,
    state: Dir,
    taken: BTreeMap<String, Taken>,
    /// What runs: a module whose file has gone since goes on.
    loaded: BTreeMap<String, LoadedPolicy>,
}

/// What a recruiter works with.
pub struct Tools {
    /// Wasm.
    pub engine: Engine,
    /// The operator's entries.
    pub entries: Vec<PolicyConfig>,
    /// Where the default modules are.
    pub default_modules: PathBuf,
    /// Compiled modules.
    pub cache: ModuleCache,
    /// What compiles.
    pub compiler: Compiler,
    /// The agent's state folder.
    pub state: Dir,
}

impl Recruiter {
    /// Remembers what an earlier agent took; a file that cannot be read is told and counts as none.
    pub fn new(tools: Tools) -> Self {
        let Tools { engine, entries, default_modules, cache, compiler, state } = tools;
        // One entry that cannot be read, of an agent of another version, does not cost the others.
        let entries_of = |text: Vec<u8>| serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(&text);
        let taken = match state.read(TAKEN).map(entries_of) {
            Ok(Ok(taken)) => taken
                .into_iter()
                .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)))
                .collect(),
            Ok(Err(error)) => {
                tracing::warn!(file = TAKEN, %error, "it cannot be read; PolicyModules are taken anew");
                BTreeMap::new()
            }
            Err(_) => BTreeMap::new(),
        };
        let loaded = BTreeMap::new();
        Self { engine, entries, default_modules, cache, compiler, state, taken, loaded }
    }

    /// The operator's own entries, before any PolicyModule is known.
    pub fn begin(&mut self) -> Roster {
        let mut roster = Roster::default();
        self.enlist_entries(&BTreeSet::new(), &mut roster);
        roster
    }

    /// The roster for what the sources say.
    pub fn muster(&mut self, call: &Call) -> Roster {
        let Call { modules, unread, node } = call;
        let mut roster = Roster::default();
        let names = modules.iter().map(name_of).chain(unread.iter().cloned()).collect();
        self.enlist_entries(&names, &mut roster);
        let before = self.taken.clone();
        let is_known = |name: &String, taken: &Taken| {
            unread.contains(name)
                || modules.iter().any(|module| name_of(module) == *name && module.metadata.uid == taken.uid)
        };
        self.taken.retain(|name, taken| is_known(name, taken));
        for module in modules {
            self.enlist(&name_of(module), module, node, &mut roster);
        }
        for name in unread {
            if let Some(taken) = self.taken.get(name).cloned() {
                self.go_on(name, taken, None, &mut roster);
            }
        }
        check_shadows(&mut roster);
        warn_of_ties(&mut roster);
        if self.taken != before {
            self.keep();
        }
        self.tidy(&roster.policies);
        roster
    }

    /// Throws away compiled modules that none of these policies uses.
    pub fn tidy(&self, policies: &[Enlisted]) {
        let loaded = policies.iter().map(|enlisted| *enlisted.policy.module.digest()).collect();
        if let Err(error) = self.cache.prune(&self.engine, &loaded) {
            tracing::warn!(error = chain(&error), "compiled modules that nobody uses stay in the cache");
        }
    }

    fn enlist_entries(&mut self, policy_modules: &BTreeSet<String>, roster: &mut Roster) {
        for entry in self.entries.clone() {
            if policy_modules.contains(&entry.name) {
                roster.problems.push(Problem {
                    object: format!("PolicyModule {}", entry.name),
                    field: Some("metadata.name".into()),
                    message: "a policy of this name stands in the agent's own file as well; the PolicyModule counts, rename one".into(),
                });
                continue;
            }
            match self.load(&entry) {
                Ok(policy) => roster.policies.push(Enlisted { policy, origin: None }),
                Err(error) => {
                    tracing::error!(policy = entry.name, error, "policy not loaded; the others go on");
                    roster.unloaded.push(Unloaded { policy: entry.name, mode: entry.mode, error });
                }
            }
        }
    }

    fn enlist(&mut self, name: &str, module: &PolicyModule, node: &Node, roster: &mut Roster) {
        let (choice, selection) = choose(module, node, self.taken.get(name));
        if let Err(error) = selection {
            roster.problems.push(Problem {
                object: format!("PolicyModule {name}"),
                field: Some("spec.nodeSelector".into()),
                message: format!("{error}; what runs stays as it is, mend the selector"),
            });
        }
        let (taken, refused) = match choice {
            Choice::None => {
                self.taken.remove(name);
                return;
            }
            Choice::Stay(taken) => (taken, None),
            Choice::Take { now, before } => {
                let mode = entry(name, &now.spec).mode;
                match (self.load(&entry(name, &now.spec)), before) {
                    (Ok(policy), _) => {
                        let origin = Origin { generation: now.generation, refused: None };
                        self.taken.insert(name.to_owned(), now);
                        roster.policies.push(Enlisted { policy, origin: Some(origin) });
                        return;
                    }
                    (Err(error), Some(before)) => (before, Some((now.generation, error))),
                    (Err(error), None) => {
                        roster.unloaded.push(Unloaded { policy: name.to_owned(), mode, error });
                        return;
                    }
                }
            }
        };
        self.go_on(name, taken, refused, roster);
    }

    /// Has what was taken earlier go on; `refused` is the newer one that is not taken.
    fn go_on(&mut self, name: &str, taken: Taken, refused: Option<(i64, String)>, roster: &mut Roster) {
        let stays = entry(name, &taken.spec);
        match self.load(&stays) {
            Ok(policy) => {
                let origin = Origin { generation: taken.generation, refused };
                roster.policies.push(Enlisted { policy, origin: Some(origin) });
            }
            Err(error) => {
                let error = refused.map_or(error, |(_, newer)| newer);
                roster.unloaded.push(Unloaded { policy: name.to_owned(), mode: stays.mode, error });
            }
        }
    }

    /// Loads a module, and makes sure that it can run: what is found out only by its evaluation comes too late for the last good one.
    fn load(&mut self, entry: &PolicyConfig) -> Result<LoadedPolicy, String> {
        let grants = entry.granted().map_err(|error| error.to_string())?;
        let loaded = load::load(&self.engine, entry, &self.default_modules, Some(&self.cache), &self.compiler);
        let policy = match loaded {
            Ok(policy) => policy,
            Err(error) => match self.loaded.get(&entry.name).filter(|known| known.config == *entry) {
                Some(known) => {
                    tracing::warn!(
                        policy = entry.name,
                        error = chain(&error),
                        "not read again; what is loaded goes on"
                    );
                    return Ok(known.clone());
                }
                None => return Err(chain(&error)),
            },
        };
        let is_missing = |interface: &&Interface| !interface.always_granted() && !grants.contains(**interface);
        let missing: Vec<_> =
            policy.module.imports().iter().filter(is_missing).map(|name| format!("`{name}`")).collect();
        if !missing.is_empty() {
            let (name, missing) = (&entry.name, missing.join(", "));
            return Err(format!("policy `{name}`: its module imports {missing}; add that to its grants"));
        }
        if let Some(protocol) = policy.description.protocol.clone() {
            CompiledProtocol::compile(protocol).map_err(|problem| problem.to_string())?;
        }
        self.loaded.insert(entry.name.clone(), policy.clone());
        Ok(policy)
    }

    /// Writes down what was taken, in one piece.
    fn keep(&self) {
        let written = || -> std::io::Result<()> {
            let text = serde_json::to_vec(&self.taken)?;
            let temporary = format!("{TAKEN}.new");
            let mut file = self.state.create(&temporary)?;
            file.write_all(&text)?;
            drop(file);
            self.state.rename(&temporary, &self.state, TAKEN)
        };
        if let Err(error) = written() {
            tracing::warn!(file = TAKEN, %error, "not written; after a restart PolicyModules are taken anew");
        }
    }
}

fn name_of(module: &PolicyModule) -> String {
    module.metadata.name.clone().unwrap_or_default()
}

/// What a roster is asked for.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The PolicyModules.
    pub modules: Vec<PolicyModule>,
    /// Those that are there and cannot be read: what was taken of them goes on.
    pub unread: BTreeSet<String>,
    /// The node that they may select.
    pub node: Node,
}

impl Call {
    /// Statuses come and go; what counts is what people wrote, and the node's labels.
    fn asks_the_same(&self, other: &Self) -> bool {
        let of = |call: &Self| {
            let written = |module: &PolicyModule| {
                let metadata = &module.metadata;
                (metadata.name.clone(), metadata.uid.clone(), metadata.generation, module.spec.clone())
            };
            let modules: Vec<_> = call.modules.iter().map(written).collect();
            (modules, call.unread.clone(), call.node.name.clone(), call.node.labels.clone())
        };
        of(self) == of(other)
    }
}

/// A recruiter on a thread of its own.
pub struct Recruits {
    calls: Sender<Call>,
}

impl Recruits {
    /// Starts the thread. Each roster is sent to the loop.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(mut recruiter: Recruiter, requests: Sender<Request>) -> std::io::Result<Self> {
        let (calls, called) = std::sync::mpsc::channel::<Call>();
        std::thread::Builder::new().name("recruits".to_owned()).spawn(move || {
            let mut last: Option<Call> = None;
            let mut again: Option<Instant> = None;
            loop {
                let wait = again.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
                let call = match called.recv_timeout(wait) {
                    // Of calls that came while a module was compiled the newest counts.
                    Ok(call) => Some(called.try_iter().last().unwrap_or(call)),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let is_same =
                    call.as_ref().is_some_and(|call| last.as_ref().is_some_and(|last| last.asks_the_same(call)));
                let Some(call) = call.or_else(|| last.clone()) else { continue };
                if !is_same {
                    let roster = recruiter.muster(&call);
                    again = roster.is_incomplete().then(|| Instant::now() + TRIED_AGAIN);
                    if requests.send(Request::Roster(Box::new(roster))).is_err() {
                        return;
                    }
                }
                last = Some(call);
            }
        })?;
        Ok(Self { calls })
    }

    /// Asks for the roster of these sources.
    pub(crate) fn call(&self, sources: &Sources) {
        let call = Call {
            modules: sources.policy_modules.clone(),
            unread: sources.unread_modules.clone(),
            node: sources.node.clone(),
        };
        // A thread that is gone was told of by its panic; what runs goes on.
        self.calls.send(call).ok();
    }
}
