//! The roster: which policies run on this node, and the modules behind them.
//!
//! It is made of the operator's entries and of the PolicyModules that select the node. Loading a module may take seconds, where
//! it has to be compiled; so a [`Recruiter`] works on a thread of its own and hands a finished [`Roster`] to the loop.
//!
//! A PolicyModule that cannot be loaded as it stands now leaves the node with what it took last: that is kept in a file, so that a
//! restart, a paused rollout or a broken change does not take a working policy away.

mod checks;
mod choice;
mod recruits;
mod swaps;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use cap_std::fs::Dir;
use qosm_cluster::PolicyModule;
use qosm_engine::{Compiler, Engine, Interface, ModuleCache};
use qosm_model::layering::CompiledProtocol;
use qosm_model::pod::Node;
use qosm_model::problem::{Problem, chain};

use self::checks::{check_shadows, warn_of_ties};
use self::choice::{Choice, Taken, choose, entry};
use self::swaps::Swaps;
use crate::agent::Unloaded;
use crate::config::PolicyConfig;
use crate::fetch::Fetcher;
use crate::load;
use crate::module_reference::ModuleReference;
use crate::policy::LoadedPolicy;

pub use self::recruits::{Call, EntriesFile, News, Recruits};
pub use self::swaps::{Swapped, TakenBack};

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
        !self.unloaded.is_empty() || self.policies.iter().any(|enlisted| enlisted.newer.is_some())
    }
}

/// A policy that can run.
#[derive(Clone)]
pub struct Enlisted {
    /// Its entry and its module.
    pub policy: LoadedPolicy,
    /// The generation of the PolicyModule that it comes from.
    pub generation: Option<i64>,
    /// What was asked for since and is not taken.
    pub newer: Option<Newer>,
}

/// A version of a policy that was asked for and does not run; an earlier one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newer {
    /// The generation of the PolicyModule, where it comes from one.
    pub generation: Option<i64>,
    /// The module.
    pub module: String,
    /// Whether it is only on its way.
    pub is_pending: bool,
    /// Why it does not run.
    pub why: String,
}

impl std::fmt::Display for Newer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.is_pending { "not there yet" } else { "not taken" };
        match self.generation {
            Some(generation) => write!(f, "generation {generation} is {verb}: {}", self.why),
            None => write!(f, "{} is {verb}: {}", self.module, self.why),
        }
    }
}

/// Why a policy does not run as its entry says.
#[derive(Clone, Debug)]
struct Miss {
    is_pending: bool,
    /// It is there, and nobody who counts vouches for it.
    is_distrust: bool,
    why: String,
}

/// Loads what a roster names.
pub struct Recruiter {
    engine: Engine,
    entries: Vec<PolicyConfig>,
    default_modules: PathBuf,
    cache: ModuleCache,
    compiler: Compiler,
    state: Dir,
    fetcher: Option<Fetcher>,
    taken: BTreeMap<String, Taken>,
    /// What was taken before that: what a version that fails its probation gives way to.
    taken_before: BTreeMap<String, Taken>,
    /// What runs: a module whose file has gone since goes on.
    loaded: BTreeMap<String, LoadedPolicy>,
    /// What ran before that.
    loaded_before: BTreeMap<String, LoadedPolicy>,
    swaps: Swaps,
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
    /// What fetches artefacts.
    pub fetcher: Option<Fetcher>,
}

impl Recruiter {
    /// Remembers what an earlier agent took; a file that cannot be read is told and counts as none.
    pub fn new(tools: Tools) -> Self {
        let Tools { engine, entries, default_modules, cache, compiler, state, fetcher } = tools;
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
        let swaps = Swaps::read(&state);
        Self {
            engine,
            entries,
            default_modules,
            cache,
            compiler,
            state,
            fetcher,
            taken,
            taken_before: BTreeMap::new(),
            loaded: BTreeMap::new(),
            loaded_before: BTreeMap::new(),
            swaps,
        }
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
        // Whoever comes back under the name of one that is gone is another.
        let runs = |name: &String| roster.policies.iter().any(|enlisted| enlisted.policy.config.name == *name);
        self.loaded.retain(|name, _| runs(name));
        self.loaded_before.retain(|name, _| runs(name));
        self.tidy(&roster.policies);
        if let Some(fetcher) = &self.fetcher {
            let of_modules = modules.iter().map(|module| entry(&name_of(module), &module.spec));
            let entries: Vec<_> =
                self.entries.iter().map(|entry| self.swaps.over(entry.clone())).chain(of_modules).collect();
            fetcher.forget(&entries);
            roster.problems.extend(fetcher.problems());
        }
        roster
    }

    /// Throws away compiled modules that none of these policies uses.
    pub fn tidy(&self, policies: &[Enlisted]) {
        // With what ran before: it may have to come back at any moment.
        let all = || policies.iter().map(|enlisted| &enlisted.policy).chain(self.loaded_before.values());
        let loaded = all().map(|policy| *policy.module.digest()).collect();
        if let Some(fetcher) = &self.fetcher {
            let origins: Vec<_> = all().map(|policy| &policy.origin).collect();
            fetcher.tidy(&origins);
        }
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
            let entry = self.swaps.over(entry);
            match self.load(&entry) {
                Ok(policy) => roster.policies.push(Enlisted { policy, generation: None, newer: None }),
                Err(miss) => self.stand_in(entry, miss, roster),
            }
        }
        self.swaps.tidy(&self.entries);
    }

    /// An entry that cannot be loaded as it stands now leaves its policy with what ran last.
    fn stand_in(&mut self, entry: PolicyConfig, miss: Miss, roster: &mut Roster) {
        let stands = self.standing(&entry, &miss);
        let Miss { is_pending, why, .. } = miss;
        match stands {
            Some(policy) => {
                let module = entry.module.unwrap_or_default();
                let newer = Some(Newer { generation: None, module, is_pending, why });
                roster.policies.push(Enlisted { policy, generation: None, newer });
            }
            None => {
                if !is_pending {
                    tracing::error!(policy = entry.name, error = why, "policy not loaded; the others go on");
                }
                roster.unloaded.push(Unloaded { policy: entry.name, mode: entry.mode, error: why, is_pending });
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
        let (taken, newer) = match choice {
            Choice::None => {
                self.taken.remove(name);
                return;
            }
            Choice::Stay(taken) => (taken, None),
            Choice::Take { now, before } => {
                let mode = entry(name, &now.spec).mode;
                match (self.load(&entry(name, &now.spec)), before) {
                    (Ok(policy), before) => {
                        let generation = Some(now.generation);
                        if let Some(before) = before.filter(|before| *before != now) {
                            self.taken_before.insert(name.to_owned(), before);
                        }
                        self.taken.insert(name.to_owned(), now);
                        roster.policies.push(Enlisted { policy, generation, newer: None });
                        return;
                    }
                    (Err(Miss { is_pending, why, .. }), Some(before)) => {
                        let (generation, module) = (Some(now.generation), now.spec.module);
                        (before, Some(Newer { generation, module, is_pending, why }))
                    }
                    (Err(Miss { is_pending, why, .. }), None) => {
                        roster.unloaded.push(Unloaded { policy: name.to_owned(), mode, error: why, is_pending });
                        return;
                    }
                }
            }
        };
        self.go_on(name, taken, newer, roster);
    }

    /// Has what was taken earlier go on; `newer` is what was asked for since.
    fn go_on(&mut self, name: &str, taken: Taken, newer: Option<Newer>, roster: &mut Roster) {
        let stays = entry(name, &taken.spec);
        match self.load(&stays) {
            Ok(policy) => {
                roster.policies.push(Enlisted { policy, generation: Some(taken.generation), newer });
            }
            Err(miss) => {
                let stands = self.standing(&stays, &miss);
                let (generation, Miss { is_pending, why, .. }) = (Some(taken.generation), miss);
                let newer = newer.unwrap_or(Newer { generation, module: taken.spec.module, is_pending, why });
                match stands {
                    Some(policy) => roster.policies.push(Enlisted { policy, generation, newer: Some(newer) }),
                    None => {
                        let Newer { is_pending, why: error, .. } = newer;
                        roster.unloaded.push(Unloaded { policy: name.to_owned(), mode: stays.mode, error, is_pending });
                    }
                }
            }
        }
    }

    /// What goes on where an entry cannot be loaded as it stands: what was loaded last, also under this very entry, for a tag or a file
    /// may have got other content; unless nobody vouches for what the entry names any more.
    fn standing(&self, entry: &PolicyConfig, miss: &Miss) -> Option<LoadedPolicy> {
        self.loaded.get(&entry.name).filter(|known| known.config != *entry || !miss.is_distrust).cloned()
    }

    /// Loads a module, and makes sure that it can run: what is found out only by its evaluation comes too late for the last good one.
    fn load(&mut self, entry: &PolicyConfig) -> Result<LoadedPolicy, Miss> {
        let refused = |why: String| Miss { is_pending: false, is_distrust: false, why };
        let grants = entry.granted().map_err(|error| refused(error.to_string()))?;
        let (engine, folder, cache) = (&self.engine, &self.default_modules, Some(&self.cache));
        let loaded = match &mut self.fetcher {
            Some(fetcher) => load::load(engine, entry, folder, fetcher, cache, &self.compiler),
            None => load::load(engine, entry, folder, &mut load::NoShelf, cache, &self.compiler),
        };
        let policy = match loaded {
            Ok(policy) => policy,
            Err(error) => match self.loaded.get(&entry.name).filter(|known| known.config == *entry) {
                // Whom nobody vouches for any more does not go on.
                Some(known) if !error.is_distrust() => {
                    tracing::warn!(
                        policy = entry.name,
                        error = chain(&error),
                        "not read again; what is loaded goes on"
                    );
                    return Ok(known.clone());
                }
                _ => {
                    let (is_pending, is_distrust) = (error.is_pending(), error.is_distrust());
                    return Err(Miss { is_pending, is_distrust, why: chain(&error) });
                }
            },
        };
        if let Some(why) = self.swaps.taken_back(entry, policy.module.digest()) {
            return Err(refused(why));
        }
        let is_missing = |interface: &&Interface| !interface.always_granted() && !grants.contains(**interface);
        let missing: Vec<_> =
            policy.module.imports().iter().filter(is_missing).map(|name| format!("`{name}`")).collect();
        if !missing.is_empty() {
            let (name, missing) = (&entry.name, missing.join(", "));
            return Err(refused(format!("policy `{name}`: its module imports {missing}; add that to its grants")));
        }
        if let Some(protocol) = policy.description.protocol.clone() {
            CompiledProtocol::compile(protocol).map_err(|problem| refused(problem.to_string()))?;
        }
        let before = self.loaded.insert(entry.name.clone(), policy.clone());
        if let Some(before) = before.filter(|before| before.module.digest() != policy.module.digest()) {
            self.loaded_before.insert(entry.name.clone(), before);
        }
        Ok(policy)
    }

    /// Takes note that a version failed: from the next roster on it is what was there before.
    fn take_back(&mut self, taken_back: TakenBack) {
        let TakenBack { policy, digest, why } = taken_back;
        let Some(failed) = self.loaded.get(&policy).filter(|loaded| *loaded.module.digest() == digest) else { return };
        self.swaps.note(failed.config.clone(), digest, why);
        if let Err(error) = self.swaps.keep(&self.state) {
            tracing::warn!(file = swaps::FILE, %error, "not written; after a restart the failed version is tried again");
        }
        if let Some(before) = self.taken_before.remove(&policy) {
            self.taken.insert(policy.clone(), before);
            self.keep();
        }
        match self.loaded_before.remove(&policy) {
            Some(before) => self.loaded.insert(policy, before),
            None => self.loaded.remove(&policy),
        };
    }

    /// Takes what the agent's own file says by now.
    fn replace_entries(&mut self, entries: Vec<PolicyConfig>) {
        self.loaded_before
            .retain(|name, _| self.taken.contains_key(name) || entries.iter().any(|entry| entry.name == *name));
        self.entries = entries;
    }

    /// Whether an earlier agent took PolicyModules.
    fn remembers_modules(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Puts another module in a policy's place.
    fn swap(&mut self, policy: &str, module: Option<String>, call: Option<&Call>) -> Result<Swapped, String> {
        if call.is_some_and(|call| call.modules.iter().any(|module| name_of(module) == policy)) {
            return Err(format!(
                "policy `{policy}` is a PolicyModule; change it there, for all nodes that it selects: kubectl patch pmod {policy} \
                 --type merge -p '{{\"spec\":{{\"module\":\"oci://…\"}}}}'"
            ));
        }
        let Some(entry) = self.entries.iter().find(|entry| entry.name == policy) else {
            let known = self.entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(format!("no policy `{policy}` is configured here; there are: {known}"));
        };
        if let Some(module) = &module {
            ModuleReference::parse(module).map_err(|error| error.to_string())?;
        }
        let running =
            self.loaded.get(policy).map_or_else(|| entry.module.clone(), |loaded| loaded.config.module.clone());
        let swapped = self.swaps.swap(entry, module, running)?;
        self.swaps.keep(&self.state).map_err(|error| format!("the swap cannot be kept in {}: {error}", swaps::FILE))?;
        Ok(swapped)
    }

    /// When something is to be looked at again although nobody asks for it.
    fn next_due(&self) -> Option<Instant> {
        self.fetcher.as_ref().and_then(Fetcher::next_due)
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
