//! A component instance of one policy.

use std::sync::Arc;
use std::time::Duration;

use qosm_model::pod::PodId;
use qosm_model::unit::{Bytes, Micros};
use wasmtime::Store;

use crate::bindings::exports::qosm::policy::lifecycle;
use crate::bindings::qosm::policy::types;
use crate::bindings::{Policy, PolicyPre};
use crate::convert::{self, PodParts, PodView};
use crate::engine::Engine;
use crate::error::{Breach, CallError, Export, Rule};
use crate::instance::{Cause, failure, fuel_used, refuel, refusal, update_pods, watch};
use crate::limits::{Limits, words};
use crate::link::{Columns, Host};
use crate::staging::{LogLine, Staged};

/// An instance of a component.
pub(crate) struct Component {
    name: Arc<str>,
    store: Store<Host>,
    policy: Policy,
    limits: Limits,
    usable: bool,
    elapsed: Duration,
    /// Fuel that the last call consumed; `None` unless the engine is metered.
    fuel: Option<u64>,
    // Keeps the watchdog's thread alive as long as the instance exists.
    _engine: Engine,
}

impl Component {
    /// Instantiates a module, which runs its start functions.
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
        // The contract has no resources, so no handles are created.
        store.set_max_component_handles(64);
        watch(&mut store, |host| &mut host.deadline);
        let fuel = refuel(&mut store).then_some(0);
        store.data_mut().deadline.start(limits.evaluation);
        let result = pre.instantiate(&mut store);
        let host = store.data_mut();
        let elapsed = host.deadline.stop();
        host.starting = false;
        let policy = result.map_err(|error| failure(&name, Export::Start, limits, &error))?;
        Ok(Self { name, store, policy, limits: limits.clone(), usable: true, elapsed, fuel, _engine: engine.clone() })
    }

    pub(crate) fn configure(&mut self, config_json: &str) -> Result<Staged, CallError> {
        self.call(Export::Configure, |policy, store| policy.call_configure(store, config_json))?;
        Ok(self.store.data_mut().transaction.commit())
    }

    pub(crate) fn pods(&mut self, upserted: &[PodView<'_>], removed: &[PodId]) -> Result<Staged, CallError> {
        update_pods(&mut self.store.data_mut().transaction, upserted, removed);
        let parts = PodParts::of(upserted);
        let containers = parts.containers(upserted);
        let pods = parts.pods(upserted, &containers);
        let gone: Vec<_> = removed.iter().map(|pod| pod.0).collect();
        let rejections = self.call(Export::Pods, |policy, store| policy.call_pods(store, &pods, &gone))?;
        let transaction = &mut self.store.data_mut().transaction;
        let checked = rejections.into_iter().try_for_each(|lifecycle::Rejection { pod, field, message }| {
            transaction.reject(PodId(pod), field, message)
        });
        match checked {
            Ok(()) => Ok(transaction.commit()),
            Err(rule) => {
                transaction.discard();
                self.usable = false;
                Err(self.breach(Export::Pods, rule))
            }
        }
    }

    pub(crate) fn evaluate(&mut self, window: Micros, cause: Cause, columns: &Columns) -> Result<Staged, CallError> {
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
        // Columns belong to one tick; the instance does not keep them alive between calls.
        self.store.data_mut().columns = Columns::default();
        result?;
        Ok(self.store.data_mut().transaction.commit())
    }

    pub(crate) fn describe(&mut self) -> Result<lifecycle::Description, CallError> {
        self.call(Export::Describe, |policy, store| policy.call_describe(store).map(Ok))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.usable
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn fuel(&self) -> Option<u64> {
        self.fuel
    }

    pub(crate) fn memory(&self) -> Bytes {
        self.store.data().memory.used()
    }

    pub(crate) fn take_log(&mut self) -> (Vec<LogLine>, u32) {
        self.store.data_mut().transaction.take_log()
    }

    /// Runs an export. On success the transaction holds what the export staged; on failure that is discarded.
    fn call<R>(
        &mut self,
        export: Export,
        run: impl FnOnce(&lifecycle::Guest, &mut Store<Host>) -> wasmtime::Result<Result<R, String>>,
    ) -> Result<R, CallError> {
        if !self.usable {
            return Err(CallError::Spent { module: Arc::clone(&self.name), export });
        }
        self.store.set_epoch_deadline(1);
        if self.fuel.is_some() {
            refuel(&mut self.store);
        }
        let host = self.store.data_mut();
        host.transaction.begin();
        host.deadline.start(self.limits.evaluation);
        let result = run(self.policy.qosm_policy_lifecycle(), &mut self.store);
        self.fuel = self.fuel.and_then(|_| fuel_used(&self.store));
        let host = self.store.data_mut();
        self.elapsed = host.deadline.stop();
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(message)) => refusal(&self.name, export, &self.limits, message),
            Err(error) => {
                self.usable = false;
                failure(&self.name, export, &self.limits, &error)
            }
        };
        host.transaction.discard();
        Err(error)
    }

    fn breach(&self, export: Export, rule: Rule) -> CallError {
        CallError::Broke(Breach { module: Arc::clone(&self.name), export, rule })
    }
}
