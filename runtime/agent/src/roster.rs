//! The roster: which policies run on this node, and the modules behind them.
//!
//! It is made of the operator's entries and of the PolicyModules that select the node. Loading a module may take seconds, where
//! it has to be compiled; so a [`Recruiter`] works on a thread of its own and hands a finished [`Roster`] to the loop.
//!
//! A PolicyModule that cannot be loaded as it stands now leaves the node with what it took last: that is kept in a file, so that a
//! restart, a paused rollout or a broken change does not take a working policy away.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

use cap_std::fs::Dir;
use qosm_cluster::PolicyModule;
use qosm_cluster::policy_module::{FailurePolicy, ModuleMode, PolicyModuleSpec, Rollout};
use qosm_engine::{Compiler, Engine, Interface, ModuleCache};
use qosm_model::layering::CompiledProtocol;
use qosm_model::pod::Node;
use qosm_model::problem::{Problem, chain};
use serde::{Deserialize, Serialize};

use crate::agent::Unloaded;
use crate::config::{OnFailure, PolicyConfig, PolicyMode};
use crate::load;
use crate::policy::LoadedPolicy;
use crate::service::Request;

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

/// The specification that a node took last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Taken {
    /// Of the object: one that was deleted and made again is another.
    uid: Option<String>,
    generation: i64,
    spec: PolicyModuleSpec,
}

/// What is to run for one PolicyModule.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and not for long")]
enum Choice {
    /// Nothing.
    None,
    /// What was taken earlier.
    Stay(Taken),
    /// The specification as it stands; if that cannot be loaded, what was taken earlier.
    Take { now: Taken, before: Option<Taken> },
}

/// Chooses for one PolicyModule.
///
/// # Errors
///
/// What about its selector cannot be understood; what was taken earlier stays.
fn choose(module: &PolicyModule, node: &Node, taken: Option<&Taken>) -> (Choice, Result<(), String>) {
    let stay = || taken.cloned().map_or(Choice::None, Choice::Stay);
    let name = module.metadata.name.as_deref().unwrap_or_default();
    match module.spec.selects(node) {
        Err(error) => return (stay(), Err(error)),
        Ok(false) => return (Choice::None, Ok(())),
        Ok(true) => {}
    }
    let now = Taken {
        uid: module.metadata.uid.clone(),
        generation: module.metadata.generation.unwrap_or(0),
        spec: module.spec.clone(),
    };
    // A change of the rollout alone, or of the selector, changes nothing about what runs.
    let essence =
        |spec: &PolicyModuleSpec| PolicyModuleSpec { rollout: Rollout::default(), node_selector: None, ..spec.clone() };
    let is_same = taken.is_some_and(|taken| essence(&taken.spec) == essence(&now.spec));
    if is_same || module.spec.rollout.reaches(name, &node.name) {
        (Choice::Take { now, before: taken.cloned() }, Ok(()))
    } else {
        (stay(), Ok(()))
    }
}

/// The entry that a PolicyModule comes to.
fn entry(name: &str, spec: &PolicyModuleSpec) -> PolicyConfig {
    let limits = spec.limits.unwrap_or_default();
    PolicyConfig {
        module: Some(spec.module.clone()),
        mode: match spec.mode {
            ModuleMode::Enforce => PolicyMode::Active,
            ModuleMode::Shadow => PolicyMode::Shadow,
        },
        shadow_of: spec.shadow_of.clone(),
        grants: spec.grants.clone(),
        priority: spec.priority,
        config: spec.config.clone(),
        on_failure: match spec.failure_policy {
            FailurePolicy::Hold => OnFailure::Hold,
            FailurePolicy::Release => OnFailure::Release,
        },
        interval_millis: spec.interval_millis,
        alarms: spec.alarms,
        alarm_gap_millis: spec.alarm_gap_millis,
        memory_mib: limits.memory_mib,
        evaluation_millis: limits.evaluation_millis,
        ..PolicyConfig::builtin(name)
    }
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

    /// The roster for these PolicyModules.
    pub fn muster(&mut self, modules: &[PolicyModule], node: &Node) -> Roster {
        let mut roster = Roster::default();
        let name_of = |module: &PolicyModule| module.metadata.name.clone().unwrap_or_default();
        let names: BTreeSet<String> = modules.iter().map(name_of).collect();
        for entry in self.entries.clone() {
            if names.contains(&entry.name) {
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
        let before = self.taken.clone();
        let is_known = |name: &String, taken: &Taken| {
            modules.iter().any(|module| name_of(module) == *name && module.metadata.uid == taken.uid)
        };
        self.taken.retain(|name, taken| is_known(name, taken));
        for module in modules {
            self.enlist(&name_of(module), module, node, &mut roster);
        }
        check_shadows(&mut roster);
        warn_of_ties(&mut roster);
        if self.taken != before {
            self.keep();
        }
        let loaded = roster.policies.iter().map(|enlisted| *enlisted.policy.module.digest()).collect();
        if let Err(error) = self.cache.prune(&self.engine, &loaded) {
            tracing::warn!(error = chain(&error), "compiled modules that nobody uses stay in the cache");
        }
        roster
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

/// A recruiter on a thread of its own.
pub struct Recruits {
    calls: Sender<(Vec<PolicyModule>, Node)>,
}

impl Recruits {
    /// Starts the thread. Each roster is sent to the loop.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(mut recruiter: Recruiter, requests: Sender<Request>) -> std::io::Result<Self> {
        let (calls, called) = std::sync::mpsc::channel::<(Vec<PolicyModule>, Node)>();
        std::thread::Builder::new().name("recruits".to_owned()).spawn(move || {
            let mut last: Option<(Vec<PolicyModule>, Node)> = None;
            let mut is_incomplete = false;
            loop {
                let wait = if is_incomplete { TRIED_AGAIN } else { Duration::MAX };
                let call = match called.recv_timeout(wait) {
                    // Of calls that came while a module was compiled the newest counts.
                    Ok(call) => Some(called.try_iter().last().unwrap_or(call)),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let is_same =
                    call.as_ref().is_some_and(|call| last.as_ref().is_some_and(|last| same_specifications(last, call)));
                let Some(call) = call.or_else(|| last.clone()) else { continue };
                if !is_same {
                    let roster = recruiter.muster(&call.0, &call.1);
                    is_incomplete = roster.is_incomplete();
                    if requests.send(Request::Roster(Box::new(roster))).is_err() {
                        return;
                    }
                }
                last = Some(call);
            }
        })?;
        Ok(Self { calls })
    }

    /// Asks for the roster of these PolicyModules.
    pub(crate) fn call(&self, modules: &[PolicyModule], node: &Node) {
        // A thread that is gone was told of by its panic; what runs goes on.
        self.calls.send((modules.to_vec(), node.clone())).ok();
    }
}

/// Statuses come and go; what counts is what people wrote, and the node's labels.
fn same_specifications(one: &(Vec<PolicyModule>, Node), other: &(Vec<PolicyModule>, Node)) -> bool {
    let of = |(modules, node): &(Vec<PolicyModule>, Node)| {
        let modules: Vec<_> = modules
            .iter()
            .map(|module| {
                let metadata = &module.metadata;
                (metadata.name.clone(), metadata.uid.clone(), metadata.generation, module.spec.clone())
            })
            .collect();
        (modules, node.name.clone(), node.labels.clone())
    };
    of(one) == of(other)
}

/// A shadow of a policy that does not run cannot be compared.
fn check_shadows(roster: &mut Roster) {
    let active: BTreeSet<String> = (roster.policies.iter().map(|enlisted| &enlisted.policy.config))
        .filter(|config| config.mode.is_active())
        .map(|config| config.name.clone())
        .chain(roster.unloaded.iter().filter(|policy| policy.mode.is_active()).map(|policy| policy.policy.clone()))
        .collect();
    let mut kept = Vec::new();
    for enlisted in std::mem::take(&mut roster.policies) {
        let config = &enlisted.policy.config;
        let missing = config.shadow_of.as_ref().filter(|of| !config.mode.is_active() && !active.contains(*of));
        match missing {
            None => kept.push(enlisted),
            Some(of) => {
                let known = active.iter().cloned().collect::<Vec<_>>().join(", ");
                let error = format!("shadowOf: no active policy `{of}` runs here; there are: {known}");
                roster.unloaded.push(Unloaded { policy: config.name.clone(), mode: config.mode, error });
            }
        }
    }
    roster.policies = kept;
}

/// Two policies of one priority that may set the same: which one wins is then a matter of names.
fn warn_of_ties(roster: &mut Roster) {
    let active: Vec<_> = roster.policies.iter().filter(|policy| policy.policy.config.mode.is_active()).collect();
    let mut problems = Vec::new();
    for (place, one) in active.iter().enumerate() {
        for other in active.iter().skip(place + 1) {
            let (one, other) =
                if one.policy.config.name < other.policy.config.name { (one, other) } else { (other, one) };
            if one.policy.config.priority != other.policy.config.priority {
                continue;
            }
            let imports = |policy: &LoadedPolicy| policy.module.imports().clone();
            let theirs = imports(&other.policy);
            let shared: Vec<_> = imports(&one.policy)
                .into_iter()
                .filter(|interface| {
                    interface.is_control() && *interface != Interface::PodEvent && theirs.contains(interface)
                })
                .map(|interface| interface.to_string())
                .collect();
            if !shared.is_empty() {
                problems.push(Problem {
                    object: format!("PolicyModule {}", other.policy.config.name),
                    field: Some("spec.priority".into()),
                    message: format!(
                        "{} is that of `{}` too, and both may set {}; where both do, `{}` wins by its name: give them \
                         different priorities",
                        one.policy.config.priority,
                        one.policy.config.name,
                        shared.join(", "),
                        one.policy.config.name
                    ),
                });
            }
        }
    }
    roster.problems.extend(problems);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn module(generation: i64, spec: serde_json::Value) -> PolicyModule {
        let metadata = json!({"name": "burst", "uid": "1", "generation": generation});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn node() -> Node {
        Node { name: "here".into(), labels: [("zone".into(), "a".into())].into(), ..Node::default() }
    }

    fn taken(generation: i64, spec: serde_json::Value) -> Taken {
        let PolicyModule { spec, metadata, .. } = module(generation, spec);
        Taken { uid: metadata.uid, generation, spec }
    }

    #[track_caller]
    fn check(module: &PolicyModule, before: Option<&Taken>, expected: &Choice) {
        assert_eq!(choose(module, &node(), before), (expected.clone(), Ok(())));
    }

    #[test]
    fn a_node_takes_what_selects_it_and_what_the_rollout_brings() {
        let old = taken(1, json!({"module": "builtin:old"}));
        let new = json!({"module": "builtin:new"});
        let take = |before: Option<&Taken>, generation, spec| Choice::Take {
            now: taken(generation, spec),
            before: before.cloned(),
        };
        check(&module(2, new.clone()), None, &take(None, 2, new.clone()));
        check(&module(2, new.clone()), Some(&old), &take(Some(&old), 2, new));

        let elsewhere = json!({"module": "builtin:new", "nodeSelector": {"matchLabels": {"zone": "b"}}});
        check(&module(2, elsewhere), Some(&old), &Choice::None);
        let paused = json!({"module": "builtin:new", "rollout": {"paused": true}});
        check(&module(2, paused.clone()), Some(&old), &Choice::Stay(old.clone()));
        check(&module(2, paused), None, &Choice::None);
        let nobody = json!({"module": "builtin:new", "rollout": {"percent": 0}});
        check(&module(2, nobody.clone()), Some(&old), &Choice::Stay(old.clone()));
        check(&module(2, nobody), None, &Choice::None);
    }

    #[test]
    fn a_rollout_that_is_paused_after_a_node_took_it_leaves_the_node_where_it_is() {
        let before = taken(1, json!({"module": "builtin:new"}));
        let paused = json!({"module": "builtin:new", "rollout": {"paused": true}});
        let now = taken(2, paused.clone());
        check(&module(2, paused), Some(&before), &Choice::Take { now, before: Some(before.clone()) });
    }

    #[test]
    fn a_selector_that_makes_no_sense_changes_nothing() {
        let before = taken(1, json!({"module": "builtin:old"}));
        let expression = json!({"key": "zone", "operator": "Near"});
        let nonsense = module(2, json!({"module": "builtin:new", "nodeSelector": {"matchExpressions": [expression]}}));
        let (choice, told) = choose(&nonsense, &node(), Some(&before));
        assert_eq!(choice, Choice::Stay(before));
        assert!(told.is_err());
    }

    #[test]
    fn an_entry_says_what_the_policy_module_says() {
        let spec = json!({
            "module": "file:///modules/x.wasm", "mode": "shadow", "shadowOf": "burst", "grants": ["node"], "priority": 7,
            "config": {"profile": "koordinator"}, "failurePolicy": "release", "intervalMillis": 500, "alarms": false,
            "alarmGapMillis": 50, "limits": {"memoryMiB": 8, "evaluationMillis": 20},
        });
        let entry = entry("next", &module(1, spec).spec);
        insta::assert_json_snapshot!(entry);
    }
}
