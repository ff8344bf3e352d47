//! The roster: which policies run on this node, and the modules behind them.
//!
//! It is made of the operator's entries and of the PolicyModules that select the node. Loading a module may take seconds, where
//! it has to be compiled; so a [`Recruiter`] works on a thread of its own and hands a finished [`Roster`] to the loop.
//!
//! What cannot be loaded as it is asked for leaves the policy with what runs, which the loop tells; after a start, with what was shown
//! to work last, or what the node took last of a PolicyModule: both are kept in files. So neither a restart nor a paused rollout nor a
//! broken change takes a working policy away. Only what the entry does not allow any more, by its keys or grants, ends.

mod checks;
mod choice;
mod kept;
mod recruits;
mod swaps;

use std::collections::{BTreeMap, BTreeSet};
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
use self::kept::Kept;
use self::swaps::Swaps;
use crate::agent::Unloaded;
use crate::config::PolicyConfig;
use crate::fetch::Fetcher;
use crate::load::{self, LoadError};
use crate::module_reference::ModuleReference;
use crate::policy::{LoadedPolicy, fits};

pub use self::recruits::{Call, EntriesFile, News, Recruits};
pub use self::swaps::{Swapped, TakenBack};

/// The policies of a node.
#[derive(Clone, Default)]
pub struct Roster {
    /// Those that can run.
    pub policies: Vec<Enlisted>,
    /// Those that cannot.
    pub unloaded: Vec<Unloaded>,
    /// What is wrong with the entries and PolicyModules.
    pub problems: Vec<Problem>,
    /// Each is told from those before it; that of the start is 0.
    pub number: u64,
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
    /// Whether it only stands in for what was asked for: whatever runs under its name by now does so as well.
    pub stands_in: bool,
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

/// What the loop says of a policy that runs.
#[derive(Clone)]
pub struct Running {
    /// Its entry and its module.
    pub policy: LoadedPolicy,
    /// What it gives way to if it fails.
    pub before: Option<LoadedPolicy>,
    /// Whether it has shown that it works.
    pub is_proven: bool,
}

/// Why a policy does not run as its entry says.
#[derive(Clone, Debug)]
struct Miss {
    is_pending: bool,
    why: String,
}

impl Miss {
    fn refused(why: impl Into<String>) -> Self {
        Self { is_pending: false, why: why.into() }
    }

    fn of(self, generation: Option<i64>, entry: &PolicyConfig) -> Newer {
        let module = entry.module.clone().unwrap_or_else(|| format!("builtin:{}", entry.name));
        Newer { generation, module, is_pending: self.is_pending, why: self.why }
    }
}

/// Loads what a roster names.
pub struct Recruiter {
    engine: Engine,
    entries: Vec<PolicyConfig>,
    default_modules: PathBuf,
    cache: ModuleCache,
    compiler: Compiler,
    fetcher: Option<Fetcher>,
    kept: Kept,
    swaps: Swaps,
    /// What runs, as the loop told last.
    running: BTreeMap<String, Running>,
    musters: u64,
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
    /// Remembers what an earlier agent took and what it saw work.
    pub fn new(tools: Tools) -> Self {
        let Tools { engine, entries, default_modules, cache, compiler, state, fetcher } = tools;
        let swaps = Swaps::read(&state);
        let (kept, running) = (Kept::read(state), BTreeMap::new());
        Self { engine, entries, default_modules, cache, compiler, fetcher, kept, swaps, running, musters: 0 }
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
        self.musters += 1;
        let mut roster = Roster { number: self.musters, ..Roster::default() };
        if let Some(fetcher) = &mut self.fetcher {
            fetcher.begin();
        }
        let names = modules.iter().map(name_of).chain(unread.iter().cloned()).collect();
        self.enlist_entries(&names, &mut roster);
        let is_known = |name: &String, taken: &Taken| {
            unread.contains(name)
                || modules.iter().any(|module| name_of(module) == *name && module.metadata.uid == taken.uid)
        };
        self.kept.taken.retain(|name, taken| is_known(name, taken));
        for module in modules {
            self.enlist(&name_of(module), module, node, &mut roster);
        }
        for name in unread {
            if let Some(taken) = self.kept.taken.get(name).cloned() {
                self.go_on(name, &taken, &mut roster);
            }
        }
        check_shadows(&mut roster);
        warn_of_ties(&mut roster);
        self.kept.write();
        self.tidy(&roster.policies);
        if let Some(fetcher) = &self.fetcher {
            fetcher.forget();
            roster.problems.extend(fetcher.problems());
        }
        roster
    }

    /// Throws away compiled modules, and artefacts, that no policy uses or may have to go back to.
    pub fn tidy(&self, policies: &[Enlisted]) {
        let running = self.running.values().flat_map(|running| running.before.iter().chain([&running.policy]));
        let all: Vec<_> = policies.iter().map(|enlisted| &enlisted.policy).chain(running).collect();
        let loaded = all.iter().map(|policy| *policy.module.digest()).collect();
        if let Some(fetcher) = &self.fetcher {
            let origins: Vec<_> = all.iter().map(|policy| &policy.origin).collect();
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
                Ok(policy) => roster.enlist(policy, None),
                Err(miss) => self.make_do(&entry, None, miss.of(None, &entry), roster),
            }
        }
        if self.swaps.tidy(&self.entries) {
            self.keep_swaps();
        }
    }

    fn enlist(&mut self, name: &str, module: &PolicyModule, node: &Node, roster: &mut Roster) {
        let (choice, selection) = choose(module, node, self.kept.taken.get(name));
        if let Err(error) = selection {
            roster.problems.push(Problem {
                object: format!("PolicyModule {name}"),
                field: Some("spec.nodeSelector".into()),
                message: format!("{error}; what runs stays as it is, mend the selector"),
            });
        }
        match choice {
            Choice::None => drop(self.kept.taken.remove(name)),
            Choice::Stay(taken) => self.go_on(name, &taken, roster),
            Choice::Take { now, before } => {
                let (asked, generation) = (entry(name, &now.spec), Some(now.generation));
                match self.load(&asked) {
                    Ok(policy) => {
                        self.kept.taken.insert(name.to_owned(), now);
                        roster.enlist(policy, generation);
                    }
                    Err(miss) => {
                        let newer = miss.of(generation, &asked);
                        // After a start: what the node took before, as a whole.
                        let taken = before.filter(|_| !self.running.contains_key(name));
                        let before = taken.and_then(|taken| Some((self.load(&entry(name, &taken.spec)).ok()?, taken)));
                        match before {
                            Some((policy, taken)) => roster.stand_in(policy, Some(taken.generation), newer),
                            None => self.make_do(&asked, None, newer, roster),
                        }
                    }
                }
            }
        }
    }

    /// Has what was taken earlier go on.
    fn go_on(&mut self, name: &str, taken: &Taken, roster: &mut Roster) {
        let (stays, generation) = (entry(name, &taken.spec), Some(taken.generation));
        match self.load(&stays) {
            Ok(policy) => roster.enlist(policy, generation),
            Err(miss) => self.make_do(&stays, generation, miss.of(generation, &stays), roster),
        }
    }

    /// An entry that cannot be loaded leaves its policy with what runs, or with nothing.
    fn make_do(&mut self, entry: &PolicyConfig, generation: Option<i64>, newer: Newer, roster: &mut Roster) {
        match self.standing(entry) {
            Some(policy) => roster.stand_in(policy, generation, newer),
            None => {
                let Newer { is_pending, why: error, .. } = newer;
                if !is_pending {
                    tracing::error!(policy = entry.name, error, "policy not loaded; the others go on");
                }
                roster.unloaded.push(Unloaded { policy: entry.name.clone(), mode: entry.mode, error, is_pending });
            }
        }
    }

    /// What may run on under an entry that cannot be loaded: what does, if the entry's keys and grants still allow it; after a start,
    /// what was shown to work last.
    fn standing(&mut self, entry: &PolicyConfig) -> Option<LoadedPolicy> {
        let Some(running) = self.running.get(&entry.name).map(|running| running.policy.clone()) else {
            let module = Some(self.kept.proven(&entry.name)?);
            return self.load(&PolicyConfig { module, ..entry.clone() }).ok();
        };
        // Grants that are not said are those of another module, and a word that is none takes nothing away.
        if entry.grants.is_some()
            && entry.granted().is_ok()
            && let Err(miss) = check_grants(entry, &running)
        {
            tracing::warn!(
                policy = entry.name,
                why = miss.why,
                "what runs is not granted any more what it needs; it ends"
            );
            return None;
        }
        let is_trusted = self.fetcher.as_ref().is_none_or(|fetcher| fetcher.still_trusts(&running.origin, entry));
        if !is_trusted {
            tracing::warn!(policy = entry.name, "nobody who counts vouches for what runs any more; it ends");
        }
        is_trusted.then_some(running)
    }

    /// Loads a module, and makes sure that it can run: what is found out only by its evaluation comes too late for the last good one.
    fn load(&mut self, entry: &PolicyConfig) -> Result<LoadedPolicy, Miss> {
        let (engine, folder, cache) = (&self.engine, &self.default_modules, Some(&self.cache));
        let loaded = match &mut self.fetcher {
            Some(fetcher) => load::load(engine, entry, folder, fetcher, cache, &self.compiler),
            None => load::load(engine, entry, folder, &mut load::NoShelf, cache, &self.compiler),
        };
        let policy = match loaded {
            Ok(policy) => policy,
            Err(error) => {
                let running = self.running.get(&entry.name).filter(|running| running.policy.config == *entry);
                // Nothing else is asked for than what runs; its file may have gone since.
                if let (LoadError::Read { .. }, Some(running)) = (&error, running) {
                    tracing::warn!(
                        policy = entry.name,
                        error = chain(&error),
                        "not read again; what is loaded goes on"
                    );
                    return Ok(running.policy.clone());
                }
                return Err(Miss { is_pending: error.is_pending(), why: chain(&error) });
            }
        };
        if let Some(why) = self.swaps.taken_back(entry, policy.module.digest()) {
            return Err(Miss::refused(why));
        }
        check_grants(entry, &policy)?;
        if let Some(protocol) = policy.description.protocol.clone() {
            CompiledProtocol::compile(protocol).map_err(|problem| Miss::refused(problem.to_string()))?;
        }
        fits(entry, &policy.description).map_err(Miss::refused)?;
        Ok(policy)
    }

    /// Takes note of what runs.
    fn note_running(&mut self, running: BTreeMap<String, Running>) {
        self.running = running;
        for (name, running) in &self.running {
            if running.is_proven {
                self.kept.prove(name, running.policy.origin.pinned(&running.policy.config));
            }
        }
        self.kept.write();
    }

    /// Takes note that a version failed: this entry does not get this module any more.
    fn take_back(&mut self, taken_back: TakenBack) {
        self.swaps.note(taken_back);
        self.keep_swaps();
    }

    /// Gives what failed of a policy another chance.
    fn forgive(&mut self, policy: &str) -> bool {
        let is_new = self.swaps.forgive(policy);
        if is_new {
            self.keep_swaps();
        }
        let hurries = self.fetcher.as_ref().is_some_and(Fetcher::hurry);
        is_new || hurries
    }

    /// Takes what the agent's own file says by now.
    fn replace_entries(&mut self, entries: Vec<PolicyConfig>) {
        self.entries = entries;
    }

    /// Whether an earlier agent took PolicyModules.
    fn remembers_modules(&self) -> bool {
        !self.kept.taken.is_empty()
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
        let running = self.running.get(policy);
        let running = running.map_or_else(|| entry.module.clone(), |running| running.policy.config.module.clone());
        let mut swaps = self.swaps.clone();
        let swapped = Swapped { roster: self.musters + 1, ..swaps.swap(entry, module.clone(), running)? };
        swaps
            .keep(self.kept.state())
            .map_err(|error| format!("the swap cannot be kept in {}: {error}", swaps::FILE))?;
        self.swaps = swaps;
        // What a tag stood for when it was asked for last may not be what is meant now.
        if let (Some(module), Some(fetcher)) = (module, &mut self.fetcher) {
            fetcher.look_again(module);
        }
        Ok(swapped)
    }

    /// When something is to be looked at again although nobody asks for it.
    fn next_due(&self) -> Option<Instant> {
        self.fetcher.as_ref().and_then(Fetcher::next_due)
    }

    fn keep_swaps(&self) {
        if let Err(error) = self.swaps.keep(self.kept.state()) {
            tracing::warn!(file = swaps::FILE, %error, "not written; after a restart it is as it was written last");
        }
    }
}

impl Roster {
    fn enlist(&mut self, policy: LoadedPolicy, generation: Option<i64>) {
        self.policies.push(Enlisted { policy, generation, newer: None, stands_in: false });
    }

    fn stand_in(&mut self, policy: LoadedPolicy, generation: Option<i64>, newer: Newer) {
        self.policies.push(Enlisted { policy, generation, newer: Some(newer), stands_in: true });
    }
}

/// Whether a module is granted all that it imports.
fn check_grants(entry: &PolicyConfig, policy: &LoadedPolicy) -> Result<(), Miss> {
    let grants = entry.granted().map_err(|error| Miss::refused(error.to_string()))?;
    let is_missing = |interface: &&Interface| !interface.always_granted() && !grants.contains(**interface);
    let missing: Vec<_> = policy.module.imports().iter().filter(is_missing).map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (name, missing) = (&entry.name, missing.join(", "));
    Err(Miss::refused(format!("policy `{name}`: its module imports {missing}; add that to its grants")))
}

fn name_of(module: &PolicyModule) -> String {
    module.metadata.name.clone().unwrap_or_default()
}
