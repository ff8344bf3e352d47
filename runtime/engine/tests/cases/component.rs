//! A component in the place of the policy's own code.

use qosm_engine::{CallError, Compiler, Engine, EngineError, Grants, Instance, Limits, Module, PodView, Staged};
use qosm_model::pod::PodId;
use qosm_model::unit::Micros;
use qosm_sdk::PodFacts;
use qosm_sdk::mock::Columns;
use qosm_sdk::testing::{Driver, Outcome};

use crate::convert;

/// One instance; what kept it from starting is the answer to each call.
pub(crate) struct Component {
    instance: Result<Instance, String>,
}

impl Component {
    pub(crate) fn load(engine: &Engine, wasm: &[u8]) -> Result<Module, EngineError> {
        engine.load(wasm, None, &Compiler::InProcess)
    }

    pub(crate) fn start(engine: &Engine, module: &Module, policy: &str) -> Self {
        let grants: Grants = module.imports().iter().copied().collect();
        let instance = engine.instantiate(module, policy, &grants, &Limits::default(), Vec::new());
        Self { instance: instance.map_err(|error| error.to_string()) }
    }

    fn call(&mut self, run: impl FnOnce(&mut Instance) -> Result<Staged, CallError>) -> Result<Outcome, String> {
        let instance = self.instance.as_mut().map_err(|error| error.clone())?;
        run(instance).map(convert::outcome).map_err(|error| error.to_string())
    }
}

impl Driver for Component {
    fn configure(&mut self, config: &str) -> Result<Outcome, String> {
        self.call(|instance| instance.configure(config))
    }

    /// Without the columns: a component is shown them in `evaluate` alone.
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
        let mut columns = convert::columns(columns);
        columns.alarms = tick.alarms.iter().map(convert::alarm).collect();
        self.call(|instance| instance.evaluate(Micros(tick.window_usec), cause, &columns))
    }
}
