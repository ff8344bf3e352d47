//! An instance: a module at work for one policy.

use std::sync::Arc;
use std::time::Duration;

use qosm_model::pod::PodId;
use qosm_model::unit::{Bytes, Micros};
use wasmtime::{Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::bindings::exports::qosm::policy::lifecycle;
use crate::bindings::qosm::policy::types;
use crate::bindings::{Policy, PolicyPre};
use crate::convert::{self, PodParts, PodView};
use crate::engine::Engine;
use crate::error::{Breach, CallError, Exhausted, Export, Refusal, Rule};
use crate::limits::{Limits, words};
use crate::link::{Columns, Host};
use crate::staging::{LogLine, Staged, cut, printable};
use crate::watchdog::Verdict;

/// How many functions an error names, and how much of each name: enough to find the place.
const FRAMES: usize = 3;
const FRAME_NAME: Bytes = Bytes(128);

/// Why an evaluation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The module's interval has passed.
    Interval,
    /// Pods came, changed or went.
    PodsChanged,
    /// The module's configuration changed.
    ConfigChanged,
    /// A trigger fired; [`Columns::alarms`] tells which.
    Alarm,
}

/// A module at work. Each call runs to its end on the caller's thread, within the limits that the instance was made with.
///
/// What a call stages comes back as one value, or not at all: after an error nothing has happened. After every error but
/// [`CallError::Refused`] the instance is spent, and a new one must be made. The first successful evaluation of an instance is
/// a full declaration: it does not release what its predecessor held and it does not want.
pub struct Instance {
    name: Arc<str>,
    store: Store<Host>,
    policy: Policy,
    limits: Limits,
    usable: bool,
    elapsed: Duration,
    fuel: Option<u64>,
    // Keeps the watchdog at its post for as long as something can run.
    _engine: Engine,
}

impl Instance {
    /// Instantiates a module: runs its start functions.
    pub(crate) fn start(
        engine: &Engine,
        pre: &PolicyPre<Host>,
        name: &str,
        host: Host,
        limits: &Limits,
    ) -> Result<Self, CallError> {
        let name: Arc<str> = name.into();
        let mut store = Store::new(engine.wasm(), host);
        store.limiter(|host| &mut host.memory);
        store.set_hostcall_fuel(words(limits.hostcall));
        // The contract has no resources, so no handle is ever made.
        store.set_max_component_handles(64);
        store.epoch_deadline_callback(|mut store| {
            Ok(match store.data_mut().deadline.judge() {
                Verdict::Continue => UpdateDeadline::Continue(1),
                Verdict::End => UpdateDeadline::Interrupt,
            })
        });
        store.set_epoch_deadline(1);
        let fuel = engine.is_metered().then_some(0);
        fill_up(&mut store, fuel);
        store.data_mut().deadline.start(limits.evaluation);
        let result = pre.instantiate(&mut store);
        let host = store.data_mut();
        let elapsed = host.deadline.stop();
        host.starting = false;
        let policy = result.map_err(|error| failure(&name, Export::Start, limits, &error))?;
        Ok(Self { name, store, policy, limits: limits.clone(), usable: true, elapsed, fuel, _engine: engine.clone() })
    }

    /// Hands over the policy-level configuration, a JSON object. Called once before anything else, and whenever it changes.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] if the module cannot use the configuration: it goes on with the former one. All others end the
    /// instance.
    pub fn configure(&mut self, config_json: &str) -> Result<Staged, CallError> {
        self.call(Export::Configure, |policy, store| policy.call_configure(store, config_json))?;
        Ok(self.store.data_mut().stage.commit())
    }

    /// Hands over pods that are new or changed, and the ids of those that are gone. From now on the module may name the pods and
    /// containers given, also if the call fails, and must not name those that are gone.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] leaves the instance usable; all others end it.
    pub fn pods(&mut self, upserted: &[PodView<'_>], removed: &[PodId]) -> Result<Staged, CallError> {
        let stage = &mut self.store.data_mut().stage;
        for &pod in removed {
            stage.take_away(pod);
        }
        for view in upserted {
            let shown = view.pod.containers.len();
            stage.give(view.id, view.containers.iter().take(shown).map(|&(id, _)| id).collect());
        }
        let parts = PodParts::of(upserted);
        let containers = parts.containers(upserted);
        let pods = parts.pods(upserted, &containers);
        let gone: Vec<_> = removed.iter().map(|pod| pod.0).collect();
        let rejections = self.call(Export::Pods, |policy, store| policy.call_pods(store, &pods, &gone))?;
        let stage = &mut self.store.data_mut().stage;
        let checked = rejections
            .into_iter()
            .try_for_each(|lifecycle::Rejection { pod, field, message }| stage.reject(PodId(pod), field, message));
        match checked {
            Ok(()) => Ok(stage.commit()),
            Err(rule) => {
                stage.discard();
                self.usable = false;
                Err(self.breach(Export::Pods, rule))
            }
        }
    }

    /// Lets the module decide. `window` is the time since its previous evaluation, 0 at the first.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] leaves the instance usable; all others end it.
    pub fn evaluate(&mut self, window: Micros, cause: Cause, columns: &Columns) -> Result<Staged, CallError> {
        let host = self.store.data_mut();
        host.show(columns);
        let cause = match cause {
            Cause::Interval => types::Cause::Interval,
            Cause::PodsChanged => types::Cause::PodsChanged,
            Cause::ConfigChanged => types::Cause::ConfigChanged,
            Cause::Alarm => types::Cause::Alarm,
        };
        let alarms: Vec<_> = columns.alarms.iter().map(convert::alarm).collect();
        let tick = types::Tick { window_usec: window.0, cause, alarms: &alarms };
        let result = self.call(Export::Evaluate, |policy, store| policy.call_evaluate(store, tick));
        // The columns are the tick's, not the instance's: nothing keeps them alive in between.
        self.store.data_mut().columns = Columns::default();
        result?;
        Ok(self.store.data_mut().stage.commit())
    }

    pub(crate) fn describe(&mut self) -> Result<lifecycle::Description, CallError> {
        self.call(Export::Describe, |policy, store| policy.call_describe(store).map(Ok))
    }

    /// Whether the instance can be called. `false` once a call trapped, took too long or broke a rule.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// How long the last call took by the wall clock; before the first, how long the start took.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How much the last call executed, in Wasm instructions or thereabouts: the same for the same module and input on each machine.
    /// `None` unless the engine counts ([`Engine::metered`]).
    pub fn fuel(&self) -> Option<u64> {
        self.fuel
    }

    /// Linear memory in use. It never shrinks while the instance lives.
    pub fn memory(&self) -> Bytes {
        self.store.data().memory.used()
    }

    /// What the module said in the last call if that failed, and how many lines were dropped; empty when taken a second time.
    pub fn take_log(&mut self) -> (Vec<LogLine>, u32) {
        self.store.data_mut().stage.take_log()
    }

    /// Runs an export. What it staged is on the stage afterwards if it succeeded, and discarded if not.
    fn call<R>(
        &mut self,
        export: Export,
        run: impl FnOnce(&lifecycle::Guest, &mut Store<Host>) -> wasmtime::Result<Result<R, String>>,
    ) -> Result<R, CallError> {
        if !self.usable {
            return Err(CallError::Spent { module: Arc::clone(&self.name), export });
        }
        self.store.set_epoch_deadline(1);
        fill_up(&mut self.store, self.fuel);
        let host = self.store.data_mut();
        host.stage.begin();
        host.deadline.start(self.limits.evaluation);
        let result = run(self.policy.qosm_policy_lifecycle(), &mut self.store);
        self.fuel = self.fuel.and_then(|_| Some(u64::MAX - self.store.get_fuel().ok()?));
        let host = self.store.data_mut();
        self.elapsed = host.deadline.stop();
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(message)) => CallError::Refused(Refusal {
                module: Arc::clone(&self.name),
                export,
                message: printable(cut(message, self.limits.text)),
            }),
            Err(error) => {
                self.usable = false;
                failure(&self.name, export, &self.limits, &error)
            }
        };
        host.stage.discard();
        Err(error)
    }

    fn breach(&self, export: Export, rule: Rule) -> CallError {
        CallError::Broke(Breach { module: Arc::clone(&self.name), export, rule })
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("name", &self.name).field("usable", &self.usable).finish_non_exhaustive()
    }
}

/// Lets a store that counts execute without end: it is time that ends a call.
fn fill_up(store: &mut Store<Host>, fuel: Option<u64>) {
    if fuel.is_some() {
        // It fails where nothing is counted, and here something is.
        let _ = store.set_fuel(u64::MAX);
    }
}

/// Why the engine ended a call.
fn failure(module: &Arc<str>, export: Export, limits: &Limits, error: &wasmtime::Error) -> CallError {
    let module = Arc::clone(module);
    if let Some(rule) = error.downcast_ref::<Rule>() {
        return CallError::Broke(Breach { module, export, rule: rule.clone() });
    }
    if let Some(&bound) = error.downcast_ref::<Exhausted>() {
        return CallError::OutOfMemory { module, export, bound };
    }
    if let Some(Trap::Interrupt) = error.downcast_ref::<Trap>() {
        return CallError::TimedOut { module, export, limit: limits.evaluation };
    }
    let mut cause = error.root_cause().to_string();
    for (depth, name) in frames(error).into_iter().enumerate() {
        cause.push_str(if depth == 0 { ", in `" } else { ", called by `" });
        cause.push_str(&name);
        cause.push('`');
    }
    CallError::Trap { module, export, cause: printable(cut(cause, limits.text)) }
}

/// The innermost functions that were running, as far as the module names them.
fn frames(error: &wasmtime::Error) -> Vec<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let names = backtrace.into_iter().flat_map(|trace| trace.frames()).filter_map(|frame| frame.func_name());
    names.take(FRAMES).map(|name| cut(name.to_owned(), FRAME_NAME)).collect()
}
