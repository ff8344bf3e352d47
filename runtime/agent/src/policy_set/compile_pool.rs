//! Compiles modules in parallel, so that a module that takes a minute does not keep the others from starting.
//!
//! A resolution waits a moment for a module. A module that is not ready by then is reported as being compiled, and the set is resolved
//! again when it is ready.
#![expect(
    clippy::disallowed_methods,
    reason = "threads of their own that compile modules, and how long they keep what was made"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qosm_engine::{Compiler, Digest, Engine, EngineError, Module, ModuleCache};
use qosm_model::protocol::Description;

/// Maximum number of modules that are compiled at the same time.
const MAX_COMPILING: usize = 4;
/// How long a module that is not taken is kept.
const RETENTION: Duration = Duration::from_secs(600);

/// The result of a compilation.
pub(super) type Compiled = Result<(Module, Description), EngineError>;

/// Compiles bytes to a module, on a thread of the pool.
type Compile = dyn Fn(&[u8]) -> Compiled + Send + Sync;

/// A pool of threads that compile modules.
pub(super) struct CompilePool(Arc<Shared>);

struct Shared {
    compile: Box<Compile>,
    /// Called when a module is ready that [`CompilePool::take`] did not wait for.
    ready: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Digest, Vec<u8>)>,
    working: BTreeSet<Digest>,
    done: BTreeMap<Digest, (Instant, Compiled)>,
    /// Modules that were asked for before they were ready.
    missed: BTreeSet<Digest>,
    threads: usize,
}

impl State {
    fn knows(&self, module: &Digest) -> bool {
        self.working.contains(module)
            || self.done.contains_key(module)
            || self.waiting.iter().any(|(waiting, _)| waiting == module)
    }
}

impl CompilePool {
    pub(super) fn new(
        engine: Engine,
        cache: Arc<ModuleCache>,
        compiler: Compiler,
        ready: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let compile = move |wasm: &[u8]| {
            let module = engine.load(wasm, Some(&cache), &compiler)?;
            let description = engine.describe(&module)?;
            Ok((module, description))
        };
        Self::with(compile, ready)
    }

    fn with(
        compile: impl Fn(&[u8]) -> Compiled + Send + Sync + 'static,
        ready: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (compile, ready) = (Box::new(compile), Box::new(ready));
        Self(Arc::new(Shared { compile, ready, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Makes a module that is in the cache, on the calling thread.
    pub(super) fn compile(&self, wasm: &[u8]) -> Compiled {
        (self.0.compile)(wasm)
    }

    /// Begins to compile a module, unless it is known already.
    pub(super) fn begin(&self, module: Digest, wasm: &[u8]) {
        let mut state = self.0.state();
        state.done.retain(|_, (since, _)| since.elapsed() < RETENTION);
        if state.knows(&module) {
            return;
        }
        state.waiting.push_back((module, wasm.to_vec()));
        if state.threads < MAX_COMPILING {
            let shared = Arc::clone(&self.0);
            match std::thread::Builder::new().name("compile".to_owned()).spawn(move || shared.work()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    // No other thread would compile it.
                    state.waiting.clear();
                    tracing::warn!(%error, "no thread to compile a module; trying again");
                }
                Err(_) => {}
            }
        }
    }

    /// Waits for a module until `until`; `None` = it is not ready. Each result is returned once.
    pub(super) fn take(&self, module: &Digest, until: Instant) -> Option<Compiled> {
        let mut state = self.0.state();
        loop {
            if let Some((_, compiled)) = state.done.remove(module) {
                return Some(compiled);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !state.knows(module) {
                state.missed.insert(*module);
                return None;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles until nothing waits.
    fn work(&self) {
        loop {
            let (module, wasm) = {
                let mut state = self.state();
                let Some(next) = state.waiting.pop_front() else {
                    state.threads -= 1;
                    return;
                };
                state.working.insert(next.0);
                next
            };
            let compiled = (self.compile)(&wasm);
            let was_missed = {
                let mut state = self.state();
                state.working.remove(&module);
                state.done.insert(module, (Instant::now(), compiled));
                state.missed.remove(&module)
            };
            self.changed.notify_all();
            if was_missed {
                (self.ready)();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn refused() -> Compiled {
        Err(EngineError::NotAComponent { found: "a test", help: "" })
    }

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn a_slow_module_does_not_keep_the_others_from_starting() {
        let (go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (sender, ready) = mpsc::channel();
        let compile = move |wasm: &[u8]| {
            if wasm == b"slow" {
                gate.lock().unwrap().recv().ok();
            }
            refused()
        };
        let compile_pool = CompilePool::with(compile, move || sender.send(()).unwrap_or_default());
        for name in ["slow", "quick", "other", "slow"] {
            compile_pool.begin(digest(name), name.as_bytes());
        }
        let soon = Instant::now() + LONG;
        assert!(compile_pool.take(&digest("quick"), soon).is_some(), "it waits for the slow one");
        assert!(compile_pool.take(&digest("other"), soon).is_some());
        assert!(compile_pool.take(&digest("slow"), Instant::now()).is_none(), "take does not wait for it");
        assert!(ready.try_recv().is_err());
        go.send(()).unwrap();
        assert!(ready.recv_timeout(LONG).is_ok(), "the callback runs when it is ready");
        assert!(compile_pool.take(&digest("slow"), Instant::now()).is_some());
        assert!(compile_pool.take(&digest("slow"), soon).is_none(), "each is had once");
    }

    #[test]
    fn no_more_than_some_are_compiled_at_a_time() {
        let (count, most) = (Arc::new(Mutex::new((0_usize, 0_usize))), 5 * MAX_COMPILING);
        let counted = Arc::clone(&count);
        // Each compilation waits until the maximum number of them runs.
        let full = Barrier::new(MAX_COMPILING);
        let compile = move |_: &[u8]| {
            {
                let mut count = counted.lock().unwrap();
                count.0 += 1;
                count.1 = count.1.max(count.0);
            }
            full.wait();
            counted.lock().unwrap().0 -= 1;
            refused()
        };
        let compile_pool = CompilePool::with(compile, || ());
        for number in 0..most {
            compile_pool.begin(digest(&number.to_string()), b"");
        }
        for number in 0..most {
            assert!(compile_pool.take(&digest(&number.to_string()), Instant::now() + LONG).is_some(), "{number}");
        }
        assert_eq!(count.lock().unwrap().1, MAX_COMPILING);
    }
}
