//! A running instance of a Rego policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qosm_model::column::{BandwidthSample, NodeSample};
use qosm_model::pod::PodId;
use qosm_model::unit::{Bytes, Micros};
use qosm_rego::Value;

use super::bundle::check_data;
use super::declaration::Declaration;
use super::input::{self, Evaluation};
use super::machine::{Address, HeapEnd, Machine};
use super::{DEPTH, Policy, is_shallow, settings};
use crate::convert::PodView;
use crate::engine::Engine;
use crate::error::{Breach, CallError, Export, Rule};
use crate::instance::{Cause, failure, refusal, update_pods};
use crate::interface::Interface;
use crate::limits::Limits;
use crate::link::Columns;
use crate::staging::{InheritedState, LogLevel, LogLine, Staged, Transaction};

/// A machine with less memory than this is not restarted to free it.
const SMALL: Bytes = Bytes(8 << 20);
/// A machine is restarted when its last evaluation needed less than this part of its memory.
const IDLE_PART: u64 = 4;

/// An instance of a Rego policy. Pods are kept as texts here and as values in the module's memory, where documents that
/// do not change stay below the heap of the evaluations.
pub(crate) struct Rego {
    name: Arc<str>,
    policy: Arc<Policy>,
    limits: Limits,
    transaction: Transaction,
    machine: Machine,
    persistent: PersistentData,
    usable: bool,
    elapsed: Duration,
    /// Fuel that the last call consumed; `None` unless the engine is metered.
    fuel: Option<u64>,
    /// The sum of the windows of all evaluations.
    windows: Micros,
    /// The policy's configuration without its `data`: the text of an object.
    config: String,
    /// The bundle's data merged with those of the configuration: the text of an object.
    data: String,
    /// The state that was saved last: the text of an object.
    state: String,
    /// Time between the saving of the inherited state and the start; the first evaluation's input has it.
    state_age: Option<Micros>,
    /// Whether the predecessor's state is not a JSON object, which is logged once.
    strange_state: bool,
    pods: BTreeMap<PodId, String>,
    bandwidth: Option<Arc<[BandwidthSample]>>,
    node: Option<NodeSample>,
    declaration: Declaration,
    /// The text of the evaluation's own part of the input; its allocation is reused.
    text: String,
    engine: Engine,
}

/// A document that stays in the module's memory between evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Document {
    PodsPath,
    QuotasPath,
    Data,
    Pods,
    Quotas,
}

impl Document {
    fn text(
        self,
        data: &str,
        pods: &BTreeMap<PodId, String>,
        bandwidth: Option<&[BandwidthSample]>,
    ) -> serde_json::Result<String> {
        match self {
            Document::PodsPath => Ok(r#"["pods"]"#.to_owned()),
            Document::QuotasPath => Ok(r#"["bandwidth"]"#.to_owned()),
            Document::Data => Ok(data.to_owned()),
            Document::Pods => Ok(input::pods(pods.values().map(String::as_str))),
            Document::Quotas => input::bandwidth(bandwidth.unwrap_or_default()),
        }
    }
}

/// The documents in the order of their addresses in the module's memory: those that change more often lie at higher addresses.
const DOCUMENTS: [Document; 5] =
    [Document::PodsPath, Document::QuotasPath, Document::Data, Document::Pods, Document::Quotas];

/// Addresses of the documents. Replacing one frees those above it.
struct PersistentData {
    base: HeapEnd,
    kept: Vec<(Address, HeapEnd)>,
}

impl PersistentData {
    fn new(machine: &mut Machine) -> wasmtime::Result<Self> {
        Ok(Self { base: machine.heap_end()?, kept: Vec::with_capacity(DOCUMENTS.len()) })
    }

    fn forget(&mut self, document: Document) {
        self.kept.truncate(document as usize);
    }

    fn end(&self) -> HeapEnd {
        self.kept.last().map_or(self.base, |&(_, end)| end)
    }

    fn address(&self, document: Document) -> Option<Address> {
        self.kept.get(document as usize).map(|&(at, _)| at)
    }

    /// Writes the missing documents up to and including `upto`.
    fn put(
        &mut self,
        machine: &mut Machine,
        upto: Document,
        text: impl Fn(Document) -> serde_json::Result<String>,
    ) -> wasmtime::Result<()> {
        let missing = DOCUMENTS.get(self.kept.len()..=upto as usize).unwrap_or_default();
        if missing.is_empty() {
            return Ok(());
        }
        machine.rewind(self.end())?;
        for &document in missing {
            let at = machine.put(&text(document)?)?;
            self.kept.push((at, machine.heap_end()?));
        }
        Ok(())
    }
}

impl Rego {
    /// Starts the policy's module.
    pub(crate) fn start(
        engine: &Engine,
        policy: &Arc<Policy>,
        name: &str,
        limits: &Limits,
        state: InheritedState,
    ) -> Result<Self, CallError> {
        let name: Arc<str> = name.into();
        let started = start(engine, policy, limits);
        let (machine, persistent) = started.map_err(|error| failure(&name, Export::Start, limits, &error))?;
        let fuel = machine.fuel();
        let age = state.age;
        let kept = match state.bytes.as_slice() {
            [] => Some("{}".to_owned()),
            bytes => object(bytes).map(|state| state.to_json()),
        };
        Ok(Self {
            name,
            policy: Arc::clone(policy),
            limits: limits.clone(),
            transaction: Transaction::new(limits.clone(), state),
            machine,
            persistent,
            usable: true,
            elapsed: Duration::ZERO,
            fuel,
            windows: Micros(0),
            config: "{}".to_owned(),
            data: policy.data.to_json(),
            state_age: age.filter(|_| kept.is_some()),
            strange_state: kept.is_none(),
            state: kept.unwrap_or_else(|| "{}".to_owned()),
            pods: BTreeMap::new(),
            bandwidth: None,
            node: None,
            declaration: Declaration::default(),
            text: String::new(),
            engine: engine.clone(),
        })
    }

    pub(crate) fn configure(&mut self, config_json: &str) -> Result<Staged, CallError> {
        self.begin(Export::Configure)?;
        let (config, data) = match self.read_config(config_json) {
            Ok(read) => read,
            Err(message) => return Err(refusal(&self.name, Export::Configure, &self.limits, message)),
        };
        self.config = config;
        if self.data != data {
            self.data = data;
            self.persistent.forget(Document::Data);
        }
        self.put(Export::Configure, Document::Data)?;
        Ok(self.transaction.commit())
    }

    /// Splits a configuration into its text without `data` and the merged data.
    fn read_config(&self, config_json: &str) -> Result<(String, String), String> {
        let config =
            Value::from_json(config_json).map_err(|error| format!("the configuration is not JSON: {error}"))?;
        if !is_shallow(&config) {
            return Err(format!("the configuration is nested deeper than {DEPTH} levels"));
        }
        let Value::Object(mut config) = config else {
            return Err("the configuration is not a JSON object".to_owned());
        };
        // With a class field, the operator's own entry is one level deeper.
        let by_class = self.policy.description.protocol.as_ref().is_some_and(|own| own.class_field.is_some());
        let key = Value::from("data");
        let data = match config.get_mut(&Value::from("policy")) {
            Some(Value::Object(entry)) if by_class => entry.remove(&key),
            _ => config.remove(&key),
        };
        let mut all = self.policy.data.clone();
        if let Some(data) = data {
            check_data(&data).map_err(|why| format!("the configuration's `data` cannot be used: {why}"))?;
            merge(&mut all, data);
        }
        Ok((Value::Object(config).to_json(), all.to_json()))
    }

    pub(crate) fn pods(&mut self, upserted: &[PodView<'_>], removed: &[PodId]) -> Result<Staged, CallError> {
        update_pods(&mut self.transaction, upserted, removed);
        self.begin(Export::Pods)?;
        // Before anything changes: a pod that is refused must not leave the module with the document of an earlier call.
        if !upserted.is_empty() || !removed.is_empty() {
            self.persistent.forget(Document::Pods);
        }
        for pod in removed {
            self.pods.remove(pod);
        }
        for view in upserted {
            self.declaration.pod_changed(view.id);
            let text = object(view.config.as_bytes())
                .ok_or_else(|| "its configuration is not a JSON object, or is nested too deep".to_owned())
                .and_then(|config| input::pod(view, &config.to_json()).map_err(|error| error.to_string()));
            match text {
                Ok(text) => self.pods.insert(view.id, text),
                Err(why) => {
                    let message = format!("pod {} cannot be handed over: {why}", view.pod.key());
                    return Err(refusal(&self.name, Export::Pods, &self.limits, message));
                }
            };
        }
        self.put(Export::Pods, Document::Pods)?;
        Ok(self.transaction.commit())
    }

    pub(crate) fn evaluate(&mut self, window: Micros, cause: Cause, columns: &Columns) -> Result<Staged, CallError> {
        self.begin(Export::Evaluate)?;
        self.windows = Micros(self.windows.0.saturating_add(window.0));
        self.node = columns.node.or(self.node);
        let shows_quotas = self.policy.grants.contains(&Interface::CpuStat);
        if shows_quotas && self.bandwidth != columns.bandwidth {
            self.bandwidth.clone_from(&columns.bandwidth);
            self.persistent.forget(Document::Quotas);
        }
        let evaluation = Evaluation {
            window,
            elapsed: self.windows,
            cause,
            columns,
            node: self.node.as_ref(),
            config: &self.config,
            state: &self.state,
            state_age: self.state_age,
            pods: &self.pods,
        };
        let declares = |interface| self.policy.grants.contains(&interface);
        if let Err(error) = input::evaluation(&mut self.text, declares, &evaluation) {
            return Err(self.ended(Export::Evaluate, &error.into()));
        }
        if let Some(observer) = self.engine.observer() {
            match self.input(shows_quotas) {
                Ok(input) => observer(&input),
                Err(error) => return Err(self.ended(Export::Evaluate, &error.into())),
            }
        }
        // Changed documents are written within the time limit of the evaluation that needs them.
        let Self { machine, persistent, data, pods, bandwidth, limits, windows, text, policy, .. } = self;
        let (result, took) = machine.within(limits, |machine| {
            persistent.put(machine, Document::Quotas, |document| document.text(data, pods, bandwidth.as_deref()))?;
            machine.rewind(persistent.end())?;
            machine.host().begin(i64::try_from(windows.0).unwrap_or(i64::MAX).saturating_mul(1000));
            let input = machine.put(text)?;
            let mut add = |path, document| match (persistent.address(path), persistent.address(document)) {
                (Some(path), Some(value)) => machine.add(input, path, value),
                _ => Ok(()),
            };
            add(Document::PodsPath, Document::Pods)?;
            if shows_quotas {
                add(Document::QuotasPath, Document::Quotas)?;
            }
            let data = persistent.address(Document::Data).unwrap_or(input);
            let document = machine.evaluate(policy.entrypoint, input, data)?;
            Ok((document, machine.heap_end()?))
        });
        self.took(took);
        let (printed, faults) = self.machine.host().take_messages();
        let (document, end) = match result {
            Ok(result) => result,
            Err(error) => {
                for line in printed {
                    self.transaction.log(LogLevel::Debug, line);
                }
                for fault in faults {
                    self.transaction.log(LogLevel::Warn, fault);
                }
                return Err(self.ended(Export::Evaluate, &error));
            }
        };
        let staged = self.stage_document(document.as_ref(), printed, faults);
        match staged {
            Ok(declaration) => self.declaration = declaration,
            Err(rule) => {
                self.transaction.discard();
                self.usable = false;
                return Err(CallError::Broke(Breach {
                    module: Arc::clone(&self.name),
                    export: Export::Evaluate,
                    rule,
                }));
            }
        }
        let staged = self.transaction.commit();
        self.state_age = None;
        if let Some(state) = staged.state.as_deref().and_then(|state| str::from_utf8(state).ok()) {
            self.state = state.to_owned();
        }
        self.shrink(end);
        Ok(staged)
    }

    /// The text of the whole input, which the module gets in parts.
    fn input(&self, shows_quotas: bool) -> serde_json::Result<String> {
        let mut text = self.text.strip_suffix('}').unwrap_or(&self.text).to_owned();
        text.push_str(",\"pods\":");
        text.push_str(&input::pods(self.pods.values().map(String::as_str)));
        if shows_quotas {
            text.push_str(",\"bandwidth\":");
            text.push_str(&input::bandwidth(self.bandwidth.as_deref().unwrap_or_default())?);
        }
        text.push('}');
        Ok(text)
    }

    /// Stages the settings of a document.
    fn stage_document(
        &mut self,
        document: Option<&Value>,
        printed: Vec<String>,
        faults: Vec<String>,
    ) -> Result<Declaration, Rule> {
        let document = document.ok_or(Rule::NoSettings)?;
        let declared = settings::read(document, &self.policy.grants, self.limits.settings)?;
        let mut next = self.declaration.stage(declared, &mut self.transaction)?;
        if std::mem::take(&mut self.strange_state) {
            let line = "what the module before saved is no JSON object: `input.state` begins empty".to_owned();
            self.transaction.log(LogLevel::Warn, line);
        }
        for line in printed {
            self.declaration.log(LogLevel::Debug, line, &mut self.transaction, &mut next);
        }
        for fault in faults {
            self.declaration.log(LogLevel::Warn, fault, &mut self.transaction, &mut next);
        }
        Ok(next)
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
        self.machine.memory()
    }

    pub(crate) fn take_log(&mut self) -> (Vec<LogLine>, u32) {
        self.transaction.take_log()
    }

    fn begin(&mut self, export: Export) -> Result<(), CallError> {
        if !self.usable {
            return Err(CallError::Spent { module: Arc::clone(&self.name), export });
        }
        self.transaction.begin();
        self.elapsed = Duration::ZERO;
        self.fuel = self.fuel.map(|_| 0);
        Ok(())
    }

    /// Adds the time and the fuel of one part of a call.
    fn took(&mut self, time: Duration) {
        self.elapsed += time;
        self.fuel = self.fuel.zip(self.machine.fuel()).map(|(sum, part)| sum.saturating_add(part));
    }

    /// Writes changed documents into the module's memory.
    fn put(&mut self, export: Export, upto: Document) -> Result<(), CallError> {
        let Self { machine, persistent, data, pods, bandwidth, limits, .. } = self;
        let (result, took) = machine.within(limits, |machine| {
            persistent.put(machine, upto, |document| document.text(data, pods, bandwidth.as_deref()))
        });
        self.took(took);
        result.map_err(|error| self.ended(export, &error))
    }

    /// Ends the instance after a failed call.
    fn ended(&mut self, export: Export, error: &wasmtime::Error) -> CallError {
        self.usable = false;
        self.transaction.discard();
        failure(&self.name, export, &self.limits, error)
    }

    /// Linear memory never shrinks, so a machine that needs only a small part of its memory is replaced by a new one.
    fn shrink(&mut self, end: HeapEnd) {
        let has = self.machine.memory();
        if has <= SMALL || u64::from(end.0) > has.0 / IDLE_PART {
            return;
        }
        // If the new machine does not start, the old one stays.
        if let Ok((machine, persistent)) = start(&self.engine, &self.policy, &self.limits) {
            (self.machine, self.persistent) = (machine, persistent);
        }
    }
}

fn start(engine: &Engine, policy: &Policy, limits: &Limits) -> wasmtime::Result<(Machine, PersistentData)> {
    let mut machine = Machine::start(&policy.module, engine.deadline(), limits, Arc::clone(&policy.builtins))?;
    let (persistent, _) = machine.within(limits, PersistentData::new);
    Ok((machine, persistent?))
}

/// Parses a JSON object that is nested no deeper than [`DEPTH`].
fn object(bytes: &[u8]) -> Option<Value> {
    let value = Value::from_json(str::from_utf8(bytes).ok()?).ok()?;
    (value.as_object().is_some() && is_shallow(&value)).then_some(value)
}

/// Merges the document `over` into `beneath`: objects key by key, any other value is replaced.
fn merge(beneath: &mut Value, over: Value) {
    match (beneath, over) {
        (Value::Object(beneath), Value::Object(over)) => {
            for (key, value) in over {
                match beneath.get_mut(&key) {
                    Some(beneath) => merge(beneath, value),
                    None => {
                        beneath.insert(key, value);
                    }
                }
            }
        }
        (beneath, over) => *beneath = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_the_configuration_lie_over_those_of_the_bundle() {
        let read = |text| Value::from_json(text).unwrap();
        for (beneath, over, expected) in [
            (r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":{"x":1,"y":[1,2]}}"#, r#"{"a":{"y":[3]}}"#, r#"{"a":{"x":1,"y":[3]}}"#),
            (r#"{"a":{"x":1}}"#, r#"{"a":null}"#, r#"{"a":null}"#),
        ] {
            let mut all = read(beneath);
            merge(&mut all, read(over));
            assert_eq!(all.to_json(), expected);
        }
    }
}
