//! The policy set: which policies run on this node, and their modules.
//!
//! It consists of the operator's entries and of the PolicyModules that select the node. Compiling a module may take seconds, so a
//! [`ModuleLoader`] works on a thread of its own and hands a finished [`PolicySet`] to the loop.
//!
//! An entry that cannot be loaded leaves the running version in place; after a start, the version that was verified last or the
//! specification of a PolicyModule that was applied last. Both are kept in files. So neither a restart nor a paused rollout nor a
//! broken change ends a working policy. Only a version that the entry's keys or grants no longer allow ends, also after a start.

mod checks;
mod choice;
mod compile_pool;
mod last_good;
mod loader_thread;
mod overrides;
pub(crate) mod resolved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use qosm_cluster::PolicyModule;
use qosm_cluster::policy_module::invalid_selector;
use qosm_engine::{Compiler, Digest, Engine, EngineError, Interface, ModuleCache, Reach};
use qosm_model::pod::Node;
use qosm_model::problem::{Problem, chain};

use self::checks::check_shadows;
use self::choice::{AppliedSpec, Choice, choose, entry, swap_refusal};
use self::compile_pool::CompilePool;
use self::last_good::LastGood;
use self::overrides::Overrides;
use crate::config::PolicyConfig;
use crate::fetch::Fetcher;
use crate::load;
use crate::load::LoadError;
use crate::loaded::LoadedPolicy;
use crate::module_reference::ModuleReference;
use crate::policy_set::resolved::LoadFailed;

pub use self::loader_thread::{Desired, EntriesFile, LoaderEvent, LoaderHandle};
pub use self::resolved::{PendingUpdate, PolicySet, ResolvedPolicy, RolledBack, Running, Swapped};

/// Why a policy does not run as its entry says.
#[derive(Clone, Debug)]
struct LoadFailure {
    is_pending: bool,
    why: String,
}

impl LoadFailure {
    fn refused(why: impl Into<String>) -> Self {
        Self { is_pending: false, why: why.into() }
    }

    fn pending_update(self, generation: Option<i64>, entry: &PolicyConfig) -> PendingUpdate {
        let module = entry.module.clone().unwrap_or_else(|| format!("builtin:{}", entry.name));
        PendingUpdate { generation, module, is_pending: self.is_pending, why: self.why }
    }
}

/// How long a resolution waits for modules that have to be compiled. Most take less; policies of slower modules follow in a later set.
const MAX_COMPILE_WAIT: Duration = Duration::from_secs(2);

/// Resolves entries and PolicyModules, and loads their modules.
pub struct ModuleLoader {
    engine: Engine,
    entries: Vec<PolicyConfig>,
    default_modules: PathBuf,
    cache: Arc<ModuleCache>,
    compile_pool: CompilePool,
    /// Until when this resolution waits for modules that have to be compiled.
    wait_until: Instant,
    /// Modules that cannot be compiled, by the policies that want them.
    uncompiled: BTreeMap<String, Digest>,
    fetcher: Option<Fetcher>,
    last_good: LastGood,
    overrides: Overrides,
    /// The running policies, as the loop reported them last.
    running: BTreeMap<String, Running>,
    resolutions: u64,
}

/// Options of a [`ModuleLoader`].
pub struct LoaderOptions {
    /// The Wasm engine.
    pub engine: Engine,
    /// The operator's entries.
    pub entries: Vec<PolicyConfig>,
    /// The folder of the default modules.
    pub default_modules: PathBuf,
    /// The cache of compiled modules.
    pub cache: ModuleCache,
    /// How modules are compiled.
    pub compiler: Compiler,
    /// The agent's state folder.
    pub state: Dir,
    /// Fetches artefacts; `None` = none are fetched.
    pub fetcher: Option<Fetcher>,
    /// Receives [`LoaderEvent::Compiled`].
    pub events: Sender<LoaderEvent>,
}

impl ModuleLoader {
    /// Creates a loader, and reads what an earlier agent applied, verified and swapped.
    #[expect(clippy::disallowed_methods, reason = "until when a first load is waited for")]
    pub fn new(options: LoaderOptions) -> Self {
        let LoaderOptions { engine, entries, default_modules, cache, compiler, state, fetcher, events } = options;
        let overrides = Overrides::read(&state);
        let (last_good, running, uncompiled) = (LastGood::read(state), BTreeMap::new(), BTreeMap::new());
        let (cache, wait_until) = (Arc::new(cache), Instant::now());
        // The receiving thread ends with the agent.
        let ready = move || drop(events.send(LoaderEvent::Compiled));
        let compile_pool = CompilePool::new(engine.clone(), Arc::clone(&cache), compiler, ready);
        Self {
            engine,
            entries,
            default_modules,
            cache,
            compile_pool,
            wait_until,
            uncompiled,
            fetcher,
            last_good,
            overrides,
            running,
            resolutions: 0,
        }
    }

    /// Resolves the operator's own entries, before any PolicyModule is known.
    #[expect(clippy::disallowed_methods, reason = "until when a first load is waited for")]
    pub fn begin(&mut self) -> PolicySet {
        let mut set = PolicySet::default();
        self.wait_until = Instant::now() + MAX_COMPILE_WAIT;
        self.resolve_entries(&BTreeSet::new(), &mut set);
        set
    }

    /// Resolves what the sources ask for.
    #[expect(clippy::disallowed_methods, reason = "until when a first load is waited for")]
    pub fn resolve(&mut self, desired: &Desired) -> PolicySet {
        let Desired { modules, unread, node } = desired;
        self.resolutions += 1;
        self.wait_until = Instant::now() + MAX_COMPILE_WAIT;
        let mut set = PolicySet { number: self.resolutions, ..PolicySet::default() };
        if let Some(fetcher) = &mut self.fetcher {
            fetcher.begin();
        }
        let names = modules.iter().map(name_of).chain(unread.iter().cloned()).collect();
        self.resolve_entries(&names, &mut set);
        let is_known = |name: &String, applied: &AppliedSpec| {
            unread.contains(name)
                || modules.iter().any(|module| name_of(module) == *name && module.metadata.uid == applied.uid)
        };
        self.last_good.applied.retain(|name, applied| is_known(name, applied));
        for module in modules {
            self.resolve_module(&name_of(module), module, node, &mut set);
        }
        for name in unread {
            if let Some(applied) = self.last_good.applied.get(name).cloned() {
                self.keep_current(name, &applied, &mut set);
            }
        }
        check_shadows(&mut set);
        self.last_good.write();
        self.remove_unused(&set.policies);
        if let Some(fetcher) = &self.fetcher {
            fetcher.forget();
            set.problems.extend(fetcher.problems());
        }
        set
    }

    /// Removes compiled modules and artefacts that no policy uses or may be rolled back to.
    pub fn remove_unused(&self, policies: &[ResolvedPolicy]) {
        let running = self.running.values().flat_map(|running| running.before.iter().chain([&running.policy]));
        let all: Vec<_> = policies.iter().map(|resolved| &resolved.policy).chain(running).collect();
        let loaded = all.iter().map(|policy| *policy.module.digest()).collect();
        if let Some(fetcher) = &self.fetcher {
            let origins: Vec<_> = all.iter().map(|policy| &policy.origin).collect();
            fetcher.remove_unused(&origins);
        }
        if let Err(error) = self.cache.prune(&self.engine, &loaded) {
            tracing::warn!(error = chain(&error), "unused compiled modules stay in the cache");
        }
    }

    fn resolve_entries(&mut self, policy_modules: &BTreeSet<String>, set: &mut PolicySet) {
        self.begin_compiling();
        for entry in self.entries.clone() {
            if policy_modules.contains(&entry.name) {
                set.problems.push(Problem {
                    object: format!("PolicyModule {}", entry.name),
                    field: Some("metadata.name".into()),
                    message: "the agent's file has a policy of this name as well; the PolicyModule counts, rename one"
                        .into(),
                });
                continue;
            }
            let entry = self.overrides.apply_to(entry);
            match self.load(&entry) {
                Ok(policy) => set.push(policy, None),
                Err(failure) => self.fall_back(&entry, None, failure.pending_update(None, &entry), set),
            }
        }
        if self.overrides.prune(&self.entries) {
            self.write_overrides();
        }
    }

    /// Starts compiling all modules that are files. A file that cannot be read is reported when its entry is resolved.
    #[expect(clippy::disallowed_methods, reason = "modules are files that the operator names by path")]
    fn begin_compiling(&self) {
        for entry in &self.entries {
            let path = match self.overrides.apply_to(entry.clone()).reference() {
                Ok(ModuleReference::File(path)) => path,
                Ok(ModuleReference::Builtin(name)) => self.default_modules.join(format!("{name}.wasm")),
                Ok(ModuleReference::Artifact(_)) | Err(_) => continue,
            };
            if let Ok(wasm) = std::fs::read(path) {
                let module = Digest::of(&wasm);
                if !self.cache.has(&self.engine, &module) {
                    self.compile_pool.begin(module, &wasm);
                }
            }
        }
    }

    fn resolve_module(&mut self, name: &str, module: &PolicyModule, node: &Node, set: &mut PolicySet) {
        let (choice, selection) = choose(module, node, self.last_good.applied.get(name));
        if let Err(error) = selection {
            set.problems.push(Problem {
                object: format!("PolicyModule {name}"),
                field: Some("spec.nodeSelector".into()),
                message: invalid_selector(&error),
            });
        }
        match choice {
            Choice::None => drop(self.last_good.applied.remove(name)),
            Choice::Keep(applied) => match self.overrides.failure_of(&entry(name, &module.spec)) {
                // The failure is still to be seen when the operator pauses the rollout because of it.
                Some(why) => {
                    let (reference, generation) = (module.spec.module.clone(), module.metadata.generation);
                    let pending_update = PendingUpdate { generation, module: reference, is_pending: false, why };
                    self.keep_after_failure(name, &applied, pending_update, set);
                }
                None => self.keep_current(name, &applied, set),
            },
            Choice::Apply { now, before } => {
                let (asked, generation) = (entry(name, &now.spec), Some(now.generation));
                match self.load(&asked) {
                    Ok(policy) => {
                        self.last_good.apply(name, now);
                        set.push(policy, generation);
                    }
                    Err(failure) => {
                        let pending_update = failure.pending_update(generation, &asked);
                        // After a start: the specification that the node applied before, as a whole.
                        let applied = before.filter(|_| !self.running.contains_key(name));
                        let before = applied
                            .and_then(|applied| Some((self.load(&entry(name, &applied.spec)).ok()?, applied)))
                            .filter(|(policy, _)| self.may_stay(&asked, policy));
                        match before {
                            Some((policy, applied)) => {
                                set.push_fallback(policy, Some(applied.generation), pending_update)
                            }
                            None => self.fall_back(&asked, None, pending_update, set),
                        }
                    }
                }
            }
        }
    }

    /// Keeps the specification that was applied earlier.
    fn keep_current(&mut self, name: &str, applied: &AppliedSpec, set: &mut PolicySet) {
        let (stays, generation) = (entry(name, &applied.spec), Some(applied.generation));
        match self.load(&stays) {
            Ok(policy) => set.push(policy, generation),
            Err(failure) => self.fall_back(&stays, generation, failure.pending_update(generation, &stays), set),
        }
    }

    /// Keeps the specification that was applied earlier, since the newer one failed here.
    fn keep_after_failure(
        &mut self,
        name: &str,
        applied: &AppliedSpec,
        pending_update: PendingUpdate,
        set: &mut PolicySet,
    ) {
        let stays = entry(name, &applied.spec);
        match self.load(&stays) {
            Ok(policy) => set.push_fallback(policy, Some(applied.generation), pending_update),
            // It is still being fetched, say.
            Err(failure) if failure.is_pending => self.keep_current(name, applied, set),
            Err(_) => self.fall_back(&stays, Some(applied.generation), pending_update, set),
        }
    }

    /// Adds the fallback for an entry that cannot be loaded, or reports the entry as not loaded.
    fn fall_back(
        &mut self,
        entry: &PolicyConfig,
        generation: Option<i64>,
        pending_update: PendingUpdate,
        set: &mut PolicySet,
    ) {
        match self.fallback_for(entry) {
            Some(policy) => set.push_fallback(policy, generation, pending_update),
            None => {
                let PendingUpdate { is_pending, why: error, .. } = pending_update;
                if !is_pending {
                    tracing::error!(policy = entry.name, error, "policy not loaded; the others go on");
                }
                set.load_failed.push(LoadFailed { policy: entry.name.clone(), mode: entry.mode, error, is_pending });
            }
        }
    }

    /// The version that may run under an entry that cannot be loaded: the running one, if the entry's keys and grants still allow it; after
    /// a start, the module that was verified last.
    fn fallback_for(&mut self, entry: &PolicyConfig) -> Option<LoadedPolicy> {
        let Some(running) = self.running.get(&entry.name).map(|running| running.policy.clone()) else {
            let module = Some(self.last_good.verified(&entry.name)?);
            return self.load(&PolicyConfig { module, ..entry.clone() }).ok();
        };
        self.may_stay(entry, &running).then_some(running)
    }

    /// Whether the keys and grants of an entry that cannot be loaded still allow an earlier version.
    fn may_stay(&self, entry: &PolicyConfig, policy: &LoadedPolicy) -> bool {
        // Default grants may be those of another module, and an unknown grant takes nothing away.
        if entry.grants.is_some()
            && entry.granted().is_ok()
            && let Err(failure) = check_grants(entry, policy)
        {
            tracing::warn!(
                policy = entry.name,
                why = failure.why,
                "policy stopped: its module needs a grant that was removed"
            );
            return false;
        }
        // What a module may set besides its own pods is no import that it could lack.
        if let (Ok(before), Ok(now)) = (policy.config.granted(), entry.granted())
            && entry.grants.is_some()
            && Reach::ALL.into_iter().any(|reach| before.reaches(reach) && !now.reaches(reach))
        {
            tracing::warn!(policy = entry.name, "policy stopped: its grant `tiers` or `all-pods` was removed");
            return false;
        }
        let is_trusted = self.fetcher.as_ref().is_none_or(|fetcher| fetcher.still_trusts(&policy.origin, entry));
        if !is_trusted {
            tracing::warn!(policy = entry.name, "policy stopped: no trusted key has signed its module");
        }
        is_trusted
    }

    /// Loads a module, and checks that it can run: what only its evaluation shows comes too late to keep the last good version.
    fn load(&mut self, entry: &PolicyConfig) -> Result<LoadedPolicy, LoadFailure> {
        let (engine, cache, compile_pool, until) = (&self.engine, &self.cache, &self.compile_pool, self.wait_until);
        let mut compile = |wasm: &[u8]| {
            let module = Digest::of(wasm);
            if cache.has(engine, &module) {
                return compile_pool.compile(wasm).map(Some);
            }
            compile_pool.begin(module, wasm);
            compile_pool.take(&module, until).transpose()
        };
        let folder = &self.default_modules;
        let loaded = match &mut self.fetcher {
            Some(fetcher) => load::load_by(entry, folder, fetcher, &mut compile),
            None => load::load_by(entry, folder, &mut load::NoArtifacts, &mut compile),
        };
        if let Err(LoadError::Module { source, .. }) = &loaded
            && let EngineError::Compile { module, .. } = source.as_ref()
        {
            self.uncompiled.insert(entry.name.clone(), *module);
        }
        let policy = match loaded {
            Ok(policy) => policy,
            Err(error) => {
                let running = self.running.get(&entry.name).filter(|running| running.policy.config == *entry);
                // The entry asks for what already runs; its file may have gone since.
                if let (LoadError::Read { .. } | LoadError::OutOfReach { .. }, Some(running)) = (&error, running) {
                    tracing::warn!(
                        policy = entry.name,
                        error = chain(&error),
                        "not read again; the loaded module keeps running"
                    );
                    return Ok(running.policy.clone());
                }
                return Err(LoadFailure { is_pending: error.is_pending(), why: chain(&error) });
            }
        };
        if let Some(why) = self.overrides.rolled_back(entry, policy.module.digest()) {
            return Err(LoadFailure::refused(why));
        }
        check_grants(entry, &policy)?;
        match policy.checked.flaw() {
            Some(flaw) => Err(LoadFailure::refused(flaw)),
            None => Ok(policy),
        }
    }

    /// Records the running policies.
    fn note_running(&mut self, running: BTreeMap<String, Running>) {
        self.running = running;
        for (name, running) in &self.running {
            if running.is_verified {
                self.last_good.set_verified(name, running.policy.origin.pinned(&running.policy.config));
                self.last_good.works(&running.policy.config);
            }
        }
        self.last_good.write();
    }

    /// Records a version that failed: its entry no longer gets its module.
    fn roll_back(&mut self, rolled_back: RolledBack) {
        self.last_good.failed(&rolled_back.entry);
        self.last_good.write();
        self.overrides.roll_back(rolled_back);
        self.write_overrides();
    }

    /// Lets the failed versions of a policy be tried again. Returns whether a resolution may change anything.
    fn clear_rollback(&mut self, policy: &str) -> bool {
        let is_new = self.overrides.clear_rollback(policy);
        if is_new {
            self.write_overrides();
        }
        let hurries = self.fetcher.as_ref().is_some_and(Fetcher::hurry);
        let was_cleared = self.uncompiled.remove(policy).is_some_and(|module| self.cache.clear_failure(&module));
        is_new || hurries || was_cleared
    }

    /// Takes the entries of the agent's own file after a change.
    fn replace_entries(&mut self, entries: Vec<PolicyConfig>) {
        self.entries = entries;
    }

    /// Whether an earlier agent applied PolicyModules.
    fn remembers_modules(&self) -> bool {
        !self.last_good.applied.is_empty()
    }

    /// Replaces the module of a policy; `None` = by the previous one.
    fn swap(&mut self, policy: &str, module: Option<String>, desired: Option<&Desired>) -> Result<Swapped, String> {
        if let Some(module) =
            desired.and_then(|desired| desired.modules.iter().find(|module| name_of(module) == policy))
        {
            return Err(swap_refusal(policy, module));
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
        let mut overrides = self.overrides.clone();
        let swapped = Swapped { policy_set: self.resolutions + 1, ..overrides.swap(entry, module.clone(), running)? };
        overrides
            .write(self.last_good.state())
            .map_err(|error| format!("the swap cannot be kept in {}: {error}", overrides::FILE))?;
        self.overrides = overrides;
        // The tag may stand for another artefact than at the last lookup.
        if let (Some(module), Some(fetcher)) = (module, &mut self.fetcher) {
            fetcher.look_again(module);
        }
        Ok(swapped)
    }

    /// When to resolve again without an event, for the fetcher.
    fn next_due(&self) -> Option<Instant> {
        self.fetcher.as_ref().and_then(Fetcher::next_due)
    }

    fn write_overrides(&self) {
        if let Err(error) = self.overrides.write(self.last_good.state()) {
            tracing::warn!(file = overrides::FILE, %error, "not written; after a restart its last written content applies");
        }
    }
}

impl PolicySet {
    fn push(&mut self, policy: LoadedPolicy, generation: Option<i64>) {
        self.policies.push(ResolvedPolicy { policy, generation, pending_update: None, is_fallback: false });
    }

    fn push_fallback(&mut self, policy: LoadedPolicy, generation: Option<i64>, pending_update: PendingUpdate) {
        self.policies.push(ResolvedPolicy {
            policy,
            generation,
            pending_update: Some(pending_update),
            is_fallback: true,
        });
    }
}

/// Checks that a module is granted all that it imports.
fn check_grants(entry: &PolicyConfig, policy: &LoadedPolicy) -> Result<(), LoadFailure> {
    let grants = entry.granted().map_err(|error| LoadFailure::refused(error.to_string()))?;
    let is_missing = |interface: &&Interface| !interface.always_granted() && !grants.contains(**interface);
    let missing: Vec<_> = policy.module.imports().iter().filter(is_missing).map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (name, missing) = (&entry.name, missing.join(", "));
    Err(LoadFailure::refused(format!("policy `{name}`: its module imports {missing}; add that to its grants")))
}

fn name_of(module: &PolicyModule) -> String {
    module.metadata.name.clone().unwrap_or_default()
}
