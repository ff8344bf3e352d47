//! Runs a module in place of the policy's own code.

use qosm_engine::{CallError, Engine, EngineError, Grants, Instance, Limits, Module, PodView, Staged};
use qosm_model::pod::PodId;
use qosm_model::unit::Micros;
use qosm_sdk::PodFacts;
use qosm_sdk::mock::Columns;
use qosm_sdk::testing::{Driver, Outcome};

use crate::convert;

/// An instance of a module. If it could not be started, each call returns the error.
#[derive(Debug)]
pub struct Wasm {
    instance: Result<Instance, String>,
}

impl Wasm {
    /// A fresh instance, which is granted what the module imports and nothing else.
    pub fn start(engine: &Engine, module: &Module, policy: &str) -> Self {
        let grants: Grants = module.imports().iter().copied().collect();
        Self::of(engine.instantiate(module, policy, &grants, &Limits::default(), Vec::new()))
    }

    /// A fresh instance with these grants only. A call of any other import ends the module's call with an error.
    pub fn with_grants(engine: &Engine, module: &Module, policy: &str, grants: &Grants) -> Self {
        Self::of(engine.instantiate_partly(module, policy, grants, &Limits::default(), Vec::new()))
    }

    fn of(instance: Result<Instance, EngineError>) -> Self {
        Self { instance: instance.map_err(|error| error.to_string()) }
    }

    fn call(&mut self, run: impl FnOnce(&mut Instance) -> Result<Staged, CallError>) -> Result<Outcome, String> {
        let instance = self.instance.as_mut().map_err(|error| error.clone())?;
        run(instance).map(convert::outcome).map_err(|error| {
            // The last log lines often explain the error; after a panic in a language other than Rust they are all that remains.
            let said = instance.take_log().0.into_iter().map(|line| format!("; it said: {}", line.message));
            error.to_string() + &said.collect::<String>()
        })
    }
}

impl Driver for Wasm {
    fn configure(&mut self, config: &str) -> Result<Outcome, String> {
        self.call(|instance| instance.configure(config))
    }

    /// Ignores the columns: the engine passes them to a module in `evaluate` only.
    fn pods(&mut self, upserted: Vec<PodFacts>, removed: Vec<qosm_sdk::PodId>, _: &Columns) -> Result<Outcome, String> {
        let pods = upserted.iter().map(convert::pod).collect::<Result<Vec<_>, _>>()?;
        let containers: Vec<_> = upserted.iter().map(convert::container_ids).collect();
        let views: Vec<_> = upserted
            .iter()
            .zip(&pods)
            .zip(&containers)
            .map(|((facts, pod), containers)| PodView {
                id: PodId(facts.id),
                pod,
                containers,
                config: &facts.config,
                annotated: facts.annotated,
            })
            .collect();
        let removed: Vec<_> = removed.into_iter().map(PodId).collect();
        self.call(|instance| instance.pods(&views, &removed))
    }

    fn evaluate(&mut self, tick: qosm_sdk::Tick, columns: &Columns) -> Result<Outcome, String> {
        let cause = convert::cause(tick.cause);
        let mut columns = convert::columns(columns).map_err(|error| error.to_string())?;
        columns.alarms = tick.alarms.iter().map(convert::alarm).collect();
        self.call(|instance| instance.evaluate(Micros(tick.window_usec), cause, &columns))
    }
}
