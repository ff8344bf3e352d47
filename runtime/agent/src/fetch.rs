//! Fetches artefacts on a separate thread, so that a slow or unreachable registry does not block the loop.
//!
//! The loader asks the [`Fetcher`] for a module, which never blocks: it returns the artefact in the store, or that it is being fetched.
//! When a fetch has ended, successful or not, the [`Fetcher`] wakes the loader.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that fetches artefacts, with its time limits")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use qosm_model::problem::{Problem, chain};
use qosm_registry::{Location, Pulled, RegistryError, Store};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;

use crate::config::{ModuleVerification, PolicyConfig};
use crate::load::{ArtifactSource, LoadError};
use crate::loaded::ModuleOrigin;
use crate::metrics::{Metrics, PullResult};
use crate::module_reference::ModuleReference;

/// Maximum number of artefacts that are fetched at the same time.
const AT_ONCE: usize = 4;
/// The first wait after a failure, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(900));
/// Shortest interval between two lookups of a tag.
const MIN_POLL: Duration = Duration::from_secs(10);

/// Fetches artefacts in the background.
pub struct Fetcher {
    store: Arc<Store>,
    jobs: mpsc::UnboundedSender<Job>,
    states: Arc<Mutex<BTreeMap<String, State>>>,
    /// Number of the current resolution.
    round: u64,
    /// Modules that the next resolution looks up, because an operator has just asked for them.
    anew: BTreeSet<String>,
}

/// One artefact to fetch.
struct Job {
    key: String,
    location: Location,
    verification: Option<ModuleVerification>,
    /// Whether the artefact is fetched only if its tag has another digest by now.
    is_poll: bool,
    /// Seconds between two lookups of its tag; `None` = it is looked up once, or has none.
    poll_seconds: Option<u32>,
}

/// Marks a job as ended, also after a panic.
struct Running {
    states: Arc<Mutex<BTreeMap<String, State>>>,
    key: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get_mut(&self.key) {
            (state.is_running, state.is_looked_up) = (false, false);
        }
    }
}

/// State of fetching one artefact.
#[derive(Debug, Default)]
struct State {
    /// The module as the entry names it.
    module: String,
    is_running: bool,
    /// Whether the job runs because an operator asked for a lookup.
    is_looked_up: bool,
    /// Number of the resolution that asked for it last.
    round: u64,
    /// The last error, and when the fetch is tried again.
    failed: Option<(String, Instant)>,
    failures: u32,
    /// When the tag is looked up again.
    next_poll: Option<Instant>,
}

impl Fetcher {
    /// Starts the thread. `wake` is called from it when something has changed.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(store: Store, metrics: Arc<Metrics>, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let store = Arc::new(store);
        let states = Arc::new(Mutex::new(BTreeMap::<String, State>::new()));
        let (jobs, mut received) = mpsc::unbounded_channel::<Job>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shared_store, shared) = (Arc::clone(&store), Arc::clone(&states));
        std::thread::Builder::new().name("fetch".to_owned()).spawn(move || {
            let at_once = Rc::new(Semaphore::new(AT_ONCE));
            let wake = Rc::new(wake);
            LocalSet::new().block_on(&runtime, async move {
                while let Some(job) = received.recv().await {
                    let (store, states, metrics) =
                        (Arc::clone(&shared_store), Arc::clone(&shared), Arc::clone(&metrics));
                    let (at_once, wake) = (Rc::clone(&at_once), Rc::clone(&wake));
                    tokio::task::spawn_local(async move {
                        // The semaphore is never closed.
                        let _permit = at_once.acquire().await;
                        let running = Running { states: Arc::clone(&states), key: job.key.clone() };
                        let result = fetch(&store, &job).await;
                        note(&states, &job, &result, &metrics);
                        drop(running);
                        wake();
                    });
                }
            });
        })?;
        Ok(Self { store, jobs, states, round: 0, anew: BTreeSet::new() })
    }

    /// When to resolve again, because a tag is to be looked up or a fetch to be retried; `None` if neither is.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        // An artefact in the store is looked up again when its tag is due, even after an error.
        let due = |state: &State| {
            let due = state.next_poll.or_else(|| state.failed.as_ref().map(|(_, at)| *at));
            due.filter(|_| !state.is_running)
        };
        states.values().filter_map(due).min()
    }

    /// Removes artefacts that the store need not keep. Those in `in_use` stay.
    pub(crate) fn remove_unused(&self, in_use: &[&ModuleOrigin]) {
        let digests = in_use.iter().filter_map(|origin| origin.artifact.as_ref()).map(|(digest, _)| *digest).collect();
        match self.store.collect(&digests) {
            Ok(collected) if collected.artifacts > 0 => {
                tracing::info!(artifacts = collected.artifacts, bytes = collected.bytes, "removed from the store");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = chain(&error), "unused artefacts cannot be removed from the store"),
        }
    }

    /// Whether a running module still has the signatures that an entry asks for. Returns `true` if that cannot be judged.
    pub(crate) fn still_trusts(&self, origin: &ModuleOrigin, entry: &PolicyConfig) -> bool {
        let (ModuleReference::Artifact(location), Some((digest, _))) = (&origin.reference, &origin.artifact) else {
            return true;
        };
        // Keys that cannot be read are a mistake and withdraw no trust.
        let Ok(trust) = entry.verification.as_ref().map(ModuleVerification::trust).transpose() else { return true };
        let stored = self.store.stored(&location.pinned(*digest), trust.as_ref());
        !matches!(stored, Err(RegistryError::Untrusted { .. }))
    }

    /// Has a module looked up at the next resolution, even if the store has it.
    pub(crate) fn look_again(&mut self, module: String) {
        self.anew.insert(module);
    }

    /// Has failed fetches tried again at the next resolution. Returns whether there are any.
    pub(crate) fn hurry(&self) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = states.values_mut().filter(|state| state.failed.is_some() && !state.is_running);
        waiting.fold(false, |_, state| {
            (state.failed, state.failures) = (None, 0);
            true
        })
    }

    /// Begins a resolution.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
    }

    /// Ends a resolution: forgets the artefacts that it did not ask for.
    pub(crate) fn forget(&self) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, state| state.is_running || state.round == self.round);
    }

    /// Problems of tags that could not be looked up; the modules of their last lookup keep running.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = states.values().filter(|state| state.next_poll.is_some());
        polled
            .filter_map(|state| {
                let (error, _) = state.failed.as_ref()?;
                Some(Problem {
                    object: format!("module {}", state.module),
                    field: None,
                    message: format!("{error}; what the tag stood for before goes on"),
                })
            })
            .collect()
    }

    fn send(&self, job: Job, state: &mut State) {
        state.is_running = self.jobs.send(job).is_ok();
    }
}

impl ArtifactSource for Fetcher {
    fn module(&mut self, entry: &PolicyConfig, location: &Location) -> Result<Pulled, LoadError> {
        let policy = || entry.name.clone();
        let failed =
            |source| LoadError::Artifact { policy: policy(), location: text(location), source: Box::new(source) };
        let trust = entry.verification.as_ref().map(ModuleVerification::trust).transpose().map_err(failed)?;
        let (stored, distrust) = match self.store.stored(location, trust.as_ref()) {
            Ok(stored) => (stored, None),
            // The artefact may have been signed again since.
            Err(error @ RegistryError::Untrusted { .. }) => (None, Some(error)),
            Err(error) => return Err(failed(error)),
        };
        // Two policies may ask for different signatures of one artefact.
        let key =
            format!("{} {:?}", entry.module.as_deref().unwrap_or_default(), trust.as_ref().map(|trust| trust.hash()));
        let states = Arc::clone(&self.states);
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry(key.clone()).or_default();
        state.module = entry.module.clone().unwrap_or_default();
        state.round = self.round;
        // A layout without a tag may have another artefact by now, too.
        let has_tag = location.digest().is_none();
        let poll_seconds = entry.poll_seconds.filter(|_| has_tag);
        let job = |is_poll| Job {
            key: key.clone(),
            location: location.clone(),
            verification: entry.verification.clone(),
            is_poll,
            poll_seconds,
        };
        let now = Instant::now();
        let is_anew = entry.module.as_ref().is_some_and(|module| self.anew.remove(module));
        // The last result does not count: the artefact may have been pushed or signed since.
        if is_anew && (has_tag || stored.is_none()) && !state.is_running {
            (state.is_looked_up, state.failed) = (true, None);
            self.send(job(stored.is_some()), state);
        }
        if state.is_looked_up && state.is_running {
            return Err(LoadError::Pending { policy: policy(), location: text(location) });
        }
        if let Some(pulled) = stored {
            match poll_seconds {
                None => (state.next_poll, state.failed) = (None, None),
                Some(seconds) if state.next_poll.is_none_or(|at| at <= now) && !state.is_running => {
                    // What was in the store before is looked up at once, also after a restart.
                    state.next_poll = Some(now + poll_interval(seconds));
                    self.send(job(true), state);
                }
                Some(_) => {}
            }
            return Ok(pulled);
        }
        state.next_poll = None;
        let wait = state.failed.as_ref().map(|(error, at)| (error.clone(), at.saturating_duration_since(now)));
        if !state.is_running && wait.as_ref().is_none_or(|(_, wait)| wait.is_zero()) {
            self.send(job(false), state);
        }
        let (policy, location) = (policy(), text(location));
        Err(match (distrust, wait) {
            (Some(error), _) => LoadError::Artifact { policy, location, source: Box::new(error) },
            (None, Some((error, wait))) => LoadError::Fetch { policy, location, error, seconds: wait.as_secs() },
            (None, None) => LoadError::Pending { policy, location },
        })
    }
}

/// A location as an entry names it.
fn text(location: &Location) -> String {
    ModuleReference::Artifact(location.clone()).to_string()
}

async fn fetch(store: &Store, job: &Job) -> Result<Option<Pulled>, RegistryError> {
    let trust = job.verification.as_ref().map(ModuleVerification::trust).transpose()?;
    if !job.is_poll {
        return store.pull(&job.location, trust.as_ref(), false, &mut ()).await.map(Some);
    }
    let before = store.stored(&job.location, trust.as_ref())?.map(|pulled| pulled.digest);
    if before == Some(store.resolve(&job.location).await?) {
        return Ok(None);
    }
    store.pull(&job.location, trust.as_ref(), true, &mut ()).await.map(Some)
}

fn note(
    states: &Mutex<BTreeMap<String, State>>,
    job: &Job,
    result: &Result<Option<Pulled>, RegistryError>,
    metrics: &Metrics,
) {
    let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
    let state = states.entry(job.key.clone()).or_default();
    (state.is_running, state.is_looked_up) = (false, false);
    match result {
        Ok(pulled) => {
            (state.failed, state.failures) = (None, 0);
            metrics.pulled(if pulled.is_some() { PullResult::Fetched } else { PullResult::Unchanged });
            if let Some(pulled) = pulled {
                tracing::info!(module = pulled.location, digest = %pulled.digest, trusted = %pulled.trusted, "fetched");
                if !job.is_poll {
                    state.next_poll = job.poll_seconds.map(|seconds| Instant::now() + poll_interval(seconds));
                }
            }
        }
        Err(error) => {
            let is_untrusted = matches!(error, RegistryError::Untrusted { .. });
            metrics.pulled(if is_untrusted { PullResult::Untrusted } else { PullResult::Failed });
            let wait = WAITS.0.saturating_mul(1 << state.failures.min(10)).min(WAITS.1);
            state.failures = state.failures.saturating_add(1);
            tracing::warn!(module = %job.location, error = chain(error), wait_seconds = wait.as_secs(), "not fetched");
            state.failed = Some((chain(error), Instant::now() + spread(wait)));
        }
    }
}

/// Time from one lookup of a tag to the next.
fn poll_interval(seconds: u32) -> Duration {
    spread(Duration::from_secs(u64::from(seconds)).max(MIN_POLL))
}

/// Varies a wait by up to a tenth, so that the nodes of a fleet do not ask at the same time.
fn spread(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    let share = u32::try_from(random % 200).unwrap_or(0) + 900;
    wait.saturating_mul(share) / 1000
}

#[cfg(test)]
mod tests {
    use qosm_model::digest::Digest;
    use qosm_registry::{Artifact, Label, RegistrySettings, Trusted};

    use super::*;

    #[test]
    fn the_tag_of_what_was_just_fetched_is_looked_up_after_its_interval() {
        for (is_poll, poll_seconds, least) in
            [(false, Some(60), Some(54)), (false, Some(1), Some(9)), (false, None, None), (true, Some(60), None)]
        {
            let location = "registry.example/policies/burst:1".parse().unwrap();
            let job = Job { key: "burst".into(), location, verification: None, is_poll, poll_seconds };
            let (location, digest) = (job.location.to_string(), Digest::of(b"burst"));
            let pulled = Pulled { location, digest, module: Vec::new(), trusted: Trusted::Unchecked };
            let (states, before) = (Mutex::new(BTreeMap::new()), Instant::now());
            note(&states, &job, &Ok(Some(pulled)), &Metrics::default());
            let next = states.lock().unwrap()["burst"].next_poll;
            let wait = next.map(|at| at.duration_since(before));
            let case = format!("{is_poll} {poll_seconds:?}: {wait:?}");
            assert_eq!(wait.is_some(), least.is_some(), "{case}");
            assert!(wait >= least.map(Duration::from_secs), "{case}");
        }
    }

    #[test]
    fn a_tag_in_a_layout_is_looked_up_again_on_a_swap_and_at_its_interval() {
        let folder = tempfile::tempdir().unwrap();
        let layout = folder.path().join("layout");
        let named = format!("oci-layout:{}:1", layout.display());
        let location: Location = named.parse().unwrap();
        let open = |name: &str| Store::open(RegistrySettings::default(), &folder.path().join(name)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let push = |name: &str| {
            let label = Label { name: name.to_owned(), created: "1970-01-01T00:00:00Z".to_owned(), ..Label::default() };
            let artifact = Artifact::pack(b"\0asm\x01\0\0\0".to_vec(), label).unwrap();
            let store = open("desk");
            runtime.block_on(store.push(&artifact, &location, &mut ())).unwrap().digest
        };
        let (wake, woken) = std::sync::mpsc::channel();
        let mut fetcher = Fetcher::start(open("store"), Arc::default(), move || {
            wake.send(()).ok();
        })
        .unwrap();
        let entry = PolicyConfig { module: Some(named.clone()), ..PolicyConfig::builtin("burst") };
        let wait = || woken.recv_timeout(Duration::from_secs(30)).unwrap();
        let loaded = |fetcher: &mut Fetcher| loop {
            match fetcher.module(&entry, &location) {
                Ok(pulled) => break pulled.digest,
                Err(LoadError::Pending { .. }) => wait(),
                Err(error) => panic!("{error}"),
            }
        };

        let first = push("first");
        assert_eq!(loaded(&mut fetcher), first);
        let second = push("second");
        assert_eq!(loaded(&mut fetcher), first, "nobody asked for a lookup");
        fetcher.look_again(named.clone());
        assert_eq!(loaded(&mut fetcher), second);

        let third = push("third");
        let polled = PolicyConfig { poll_seconds: Some(10), ..entry.clone() };
        assert_eq!(fetcher.module(&polled, &location).unwrap().digest, second, "the lookup has only begun");
        wait();
        assert_eq!(fetcher.module(&polled, &location).unwrap().digest, third);

        std::fs::remove_dir_all(&layout).unwrap();
        fetcher.look_again(named.clone());
        assert_eq!(loaded(&mut fetcher), third, "the layout is gone, and the last artefact stays");
    }
}
