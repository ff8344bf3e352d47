//! Tests of the ledger's rules: a simulated kernel, and leases as policies would stage them.

mod adoption;
mod arbitration;
mod block_io;
mod drift;
mod following;
mod identities;
mod journal;
mod lowering;
mod node;
mod order;
mod release;
mod resizes;
mod restore;
mod unpinned;

use std::sync::OnceLock;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::Engine;
use qosm_host::Host;
use qosm_host::simulated::{Spec, Versions};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Holder, Priority, Timestamp};
use qosm_model::pod::{ContainerId, Pod, PodId, Tier};

use crate::config::AgentConfig;
use crate::inputs::Inputs;
use crate::journal::Journal;
use crate::ledger::{Applied, Key, Ledger};
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policies::Policies;
use crate::step::Mode;
use crate::table::PodTable;

const POD: Target = Target::Pod(PodId(1));
const APP: Target = Target::Container(ContainerId(1));
const POD_PATH: &str = "kubepods/burstable/podu";
const APP_PATH: &str = "kubepods/burstable/podu/app";

/// A ledger on a node with one pod of one container, both attached.
struct Env {
    ledger: Ledger,
    host: Host,
    pods: PodTable,
    policies: Policies,
    config: AgentConfig,
    metrics: Metrics,
    seconds: i64,
}

impl Env {
    fn new() -> Self {
        Self::on(Versions::V2, None)
    }

    fn on(versions: Versions, journal: Option<Journal>) -> Self {
        Self::like(&Spec { versions, ..Spec::default() }, journal)
    }

    fn like(spec: &Spec, journal: Option<Journal>) -> Self {
        let mut host = Host::simulated(spec).unwrap();
        for path in [POD_PATH, APP_PATH] {
            host.create(path).unwrap();
        }
        Self::of(host, journal)
    }

    fn of(mut host: Host, journal: Option<Journal>) -> Self {
        let mut pods = PodTable::default();
        pods.update(vec![pod()]);
        let mut ledger = Ledger::new(&mut host, journal, false).unwrap();
        for (target, path) in [(POD, POD_PATH), (APP, APP_PATH)] {
            ledger.open_cgroup(&mut host, target, path).unwrap();
        }
        pods.attach(PodId(1), &[POD, APP]);
        ledger.opened(&mut host, &[POD, APP]);
        let none = |_: &str| Ok::<_, crate::policies::PoliciesError>(crate::saved_state::SavedState::default());
        let policies = Policies::new(engine(), Vec::new(), Vec::new(), none).unwrap();
        let (config, metrics) = (AgentConfig::default(), Metrics::default());
        Self { ledger, host, pods, policies, config, metrics, seconds: 0 }
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Ledger, &mut Host, &Inputs<'_>) -> T) -> T {
        let now = Now { wall: Timestamp(self.seconds * 1000), ..Now::default() };
        let ticks = u64::try_from(self.seconds).unwrap();
        let inputs = Inputs {
            pods: &self.pods,
            policies: &self.policies,
            config: &self.config,
            metrics: &self.metrics,
            memory_allocatable: None,
            answer: None,
            has_api_server: false,
            mode: Mode::Enforce,
            now,
            ticks,
        };
        f(&mut self.ledger, &mut self.host, &inputs)
    }

    fn lease(&mut self, policy: &str, priority: i32, key: Key, value: Value) {
        let now = Timestamp(self.seconds * 1000);
        self.ledger.lease(&holder(policy, priority), key, value, now);
    }

    fn apply(&mut self) -> Applied {
        self.with(|ledger, host, inputs| ledger.apply(host, inputs))
    }

    /// A tick later: held knobs are compared with the kernel, then all is applied.
    fn tick(&mut self) -> Applied {
        self.later(1)
    }

    fn later(&mut self, seconds: i64) -> Applied {
        self.seconds += seconds;
        let mut all = self.with(|ledger, host, inputs| ledger.verify(host, inputs));
        self.ledger.end_contests();
        let applied = self.apply();
        all.decisions.extend(applied.decisions);
        all.refused.extend(applied.refused);
        all.notices.extend(applied.notices);
        all.gone.extend(applied.gone);
        all
    }

    /// Writes a file as another program.
    fn write(&mut self, path: &str, file: &str, text: &str) {
        self.host.simulated_mut().unwrap().set_file(path, file, text).unwrap();
    }

    fn value(&mut self, key: Key) -> Value {
        self.host.read(key.0, key.1).unwrap()
    }
}

fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().unwrap()).clone()
}

fn holder(policy: &str, priority: i32) -> Holder {
    Holder { policy: policy.into(), priority: Priority(priority) }
}

fn pod() -> Pod {
    limited_to("1")
}

/// The pod with this CPU limit.
fn limited_to(cpu: &str) -> Pod {
    let text = r#"{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable"}}"#;
    let text = text.replace(r#""limits": {"cpu": "1"}"#, &format!(r#""limits": {{"cpu": "{cpu}"}}"#));
    qosm_cluster::parse_objects(&text, "pod.json").pods.remove(0)
}

const fn n(number: i64) -> Value {
    Value::Number(number)
}

fn open_journal(folder: &std::path::Path) -> Journal {
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
    Journal::open(&dir, folder, "boot").unwrap()
}
