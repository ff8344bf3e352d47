//! A module in the place of the policy's own code.

use qosm_engine::{CallError, Engine, EngineError, Grants, Instance, Limits, Module, PodView, Staged};
use qosm_model::pod::PodId;
use qosm_model::unit::Micros;
use qosm_sdk::PodFacts;
use qosm_sdk::mock::Columns;
use qosm_sdk::testing::{Driver, Outcome};

use crate::convert;

/// One instance; what kept it from starting is the answer to each call.
#[derive(Debug)]
pub struct Wasm {
    instance: Result<Instance, String>,
}

impl Wasm {
    /// A fresh instance that may do what the module imports and nothing else.
    pub fn start(engine: &Engine, module: &Module, policy: &str) -> Self {
        let grants: Grants = module.imports().iter().copied().collect();
        Self::of(engine.instantiate(module, policy, &grants, &Limits::default(), Vec::new()))
    }

    /// The same, but with these grants alone: a call of anything else ends what it is called in.
    pub fn with_grants(engine: &Engine, module: &Module, policy: &str, grants: &Grants) -> Self {
        Self::of(engine.instantiate_partly(module, policy, grants, &Limits::default(), Vec::new()))
    }

    fn of(instance: Result<Instance, EngineError>) -> Self {
        Self { instance: instance.map_err(|error| error.to_string()) }
    }

    fn call(&mut self, run: impl FnOnce(&mut Instance) -> Result<Staged, CallError>) -> Result<Outcome, String> {
        let instance = self.instance.as_mut().map_err(|error| error.clone())?;
        run(instance).map(convert::outcome).map_err(|error| {
            // What it said last is often why: all that a panic in another language than Rust leaves behind.
            let said = instance.take_log().0.into_iter().map(|line| format!("; it said: {}", line.message));
            error.to_string() + &said.collect::<String>()
        })
    }
}

impl Driver for Wasm {
    fn configure(&mut self, config: &str) -> Result<Outcome, String> {
        self.call(|instance| instance.configure(config))
    }

    /// Without the columns: a module is shown them in `evaluate` alone.
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
