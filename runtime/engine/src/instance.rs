//! An instance: a running module of one policy, a component or Rego.

use std::sync::Arc;
use std::time::Duration;

use qosm_model::pod::PodId;
use qosm_model::unit::{Bytes, Micros};
use wasmtime::{Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::component::Component;
use crate::convert::PodView;
use crate::error::{Breach, CallError, Exhausted, Export, Refusal, Rule};
use crate::limits::Limits;
use crate::link::Columns;
use crate::rego::{Abort, Rego};
use crate::staging::{LogLine, Staged, Transaction, cut, printable};
use crate::watchdog::{Deadline, DeadlineAction};

/// Number of functions that an error names, and the length to which each name is cut.
const FRAMES: usize = 3;
const FRAME_NAME: Bytes = Bytes(128);

/// Why an evaluation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The module's interval has passed.
    Interval,
    /// Pods were added, changed or removed.
    PodsChanged,
    /// The module's configuration changed.
    ConfigChanged,
    /// A trigger fired; [`Columns::alarms`] holds it.
    Alarm,
}

/// A running module. Each call runs to completion on the caller's thread, within the limits of the instance.
///
/// The effects of a call are returned as one value; after an error there are none. After every error but
/// [`CallError::Refused`] the instance cannot be used again, and the caller must create a new one. The first successful
/// evaluation of an instance is a full declaration: it does not release knobs that only its predecessor held, nor
/// undefine its predecessor's classes.
pub struct Instance(Form);

enum Form {
    Component(Box<Component>),
    Rego(Box<Rego>),
}

impl From<Component> for Instance {
    fn from(component: Component) -> Self {
        Self(Form::Component(Box::new(component)))
    }
}

impl From<Rego> for Instance {
    fn from(rego: Rego) -> Self {
        Self(Form::Rego(Box::new(rego)))
    }
}

impl Instance {
    /// Passes the policy-level configuration, a JSON object. Called once before anything else, and whenever the
    /// configuration changes.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] if the module cannot use the configuration; it leaves the instance usable. All others end it.
    pub fn configure(&mut self, config_json: &str) -> Result<Staged, CallError> {
        match &mut self.0 {
            Form::Component(component) => component.configure(config_json),
            Form::Rego(rego) => rego.configure(config_json),
        }
    }

    /// Passes pods that are new or changed, and the ids of pods that are gone. From now on the module may name these pods
    /// and their containers, even if the call fails, and must not name pods that are gone.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] leaves the instance usable; all others end it.
    pub fn pods(&mut self, upserted: &[PodView<'_>], removed: &[PodId]) -> Result<Staged, CallError> {
        match &mut self.0 {
            Form::Component(component) => component.pods(upserted, removed),
            Form::Rego(rego) => rego.pods(upserted, removed),
        }
    }

    /// Runs an evaluation. `window` is the time since the previous one, 0 at the first.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] leaves the instance usable; all others end it.
    pub fn evaluate(&mut self, window: Micros, cause: Cause, columns: &Columns) -> Result<Staged, CallError> {
        match &mut self.0 {
            Form::Component(component) => component.evaluate(window, cause, columns),
            Form::Rego(rego) => rego.evaluate(window, cause, columns),
        }
    }

    /// Whether the instance can be called. `false` once a call trapped, took too long or broke a rule.
    pub fn is_usable(&self) -> bool {
        match &self.0 {
            Form::Component(component) => component.is_usable(),
            Form::Rego(rego) => rego.is_usable(),
        }
    }

    /// How long the last call took by the wall clock; before the first, how long the start took.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Form::Component(component) => component.elapsed(),
            Form::Rego(rego) => rego.elapsed(),
        }
    }

    /// Fuel that the last call consumed, roughly the number of Wasm instructions: the same for the same module and input
    /// on every machine. `None` unless the engine counts ([`Engine::metered`](crate::Engine::metered)).
    pub fn fuel(&self) -> Option<u64> {
        match &self.0 {
            Form::Component(component) => component.fuel(),
            Form::Rego(rego) => rego.fuel(),
        }
    }

    /// Linear memory in use. That of a component never shrinks while the instance lives.
    pub fn memory(&self) -> Bytes {
        match &self.0 {
            Form::Component(component) => component.memory(),
            Form::Rego(rego) => rego.memory(),
        }
    }

    /// The module's log lines of the last call if it failed, and the number of dropped lines. A second call returns nothing.
    pub fn take_log(&mut self) -> (Vec<LogLine>, u32) {
        match &mut self.0 {
            Form::Component(component) => component.take_log(),
            Form::Rego(rego) => rego.take_log(),
        }
    }

    fn name(&self) -> &str {
        match &self.0 {
            Form::Component(component) => component.name(),
            Form::Rego(rego) => rego.name(),
        }
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name())
            .field("usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

/// Fills the store's fuel to the maximum: time, not fuel, ends a call. Returns whether the engine counts fuel.
pub(crate) fn refuel<T>(store: &mut Store<T>) -> bool {
    store.set_fuel(u64::MAX).is_ok()
}

/// Fuel consumed since [`refuel`]; `None` unless the engine counts.
pub(crate) fn fuel_used<T>(store: &Store<T>) -> Option<u64> {
    Some(u64::MAX - store.get_fuel().ok()?)
}

/// Makes the store check its deadline whenever the engine's epoch passes, from its first instruction on.
pub(crate) fn watch<T: 'static>(store: &mut Store<T>, deadline: fn(&mut T) -> &mut Deadline) {
    store.epoch_deadline_callback(move |mut store| {
        Ok(match deadline(store.data_mut()).on_epoch() {
            DeadlineAction::Continue => UpdateDeadline::Continue(1),
            DeadlineAction::End => UpdateDeadline::Interrupt,
        })
    });
    store.set_epoch_deadline(1);
}

/// Allows the module to name these pods and their containers, and no longer those that are gone.
pub(crate) fn update_pods(transaction: &mut Transaction, upserted: &[PodView<'_>], removed: &[PodId]) {
    for &pod in removed {
        transaction.remove_pod(pod);
    }
    for view in upserted {
        let shown = view.pod.containers.len();
        transaction.add_pod(view.id, view.containers.iter().take(shown).map(|&(id, _)| id).collect());
    }
}

/// The error for a call that the module refused.
pub(crate) fn refusal(module: &Arc<str>, export: Export, limits: &Limits, message: String) -> CallError {
    CallError::Refused(Refusal { module: Arc::clone(module), export, message: printable(cut(message, limits.text)) })
}

/// Converts the engine's error that ended a call.
pub(crate) fn failure(module: &Arc<str>, export: Export, limits: &Limits, error: &wasmtime::Error) -> CallError {
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
    // The message of a policy that aborts names its file and line.
    let frames = if error.is::<Abort>() { Vec::new() } else { frames(error) };
    for (depth, name) in frames.into_iter().enumerate() {
        cause.push_str(if depth == 0 { ", in `" } else { ", called by `" });
        cause.push_str(&name);
        cause.push('`');
    }
    CallError::Trap { module, export, cause: printable(cut(cause, limits.text)) }
}

/// The innermost functions that were running, as far as the module has names for them.
fn frames(error: &wasmtime::Error) -> Vec<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let names = backtrace.into_iter().flat_map(|trace| trace.frames()).filter_map(|frame| frame.func_name());
    names.take(FRAMES).map(|name| cut(name.to_owned(), FRAME_NAME)).collect()
}
