//! The agent's own usage, under the names that all Prometheus clients use for it, without a prefix.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qosm_host::OwnUse;

#[derive(Debug)]
pub(super) struct Process {
    registry: Registry,
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    virtual_memory: Gauge,
    started: Gauge<f64, AtomicU64>,
}

impl Process {
    pub(super) fn new() -> Self {
        let mut process = Self {
            registry: Registry::default(),
            cpu: Counter::default(),
            resident: Gauge::default(),
            virtual_memory: Gauge::default(),
            started: Gauge::default(),
        };
        let Self { registry, cpu, resident, virtual_memory, started } = &mut process;
        registry.register("process_cpu_seconds", "CPU time that the agent used", cpu.clone());
        registry.register("process_resident_memory_bytes", "The agent's memory", resident.clone());
        registry.register("process_virtual_memory_bytes", "The agent's address space", virtual_memory.clone());
        let meaning = "When the agent began, in seconds since the epoch";
        registry.register("process_start_time_seconds", meaning, started.clone());
        process
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn used(&self, own: OwnUse) {
        let seconds = std::time::Duration::from_micros(own.cpu.0).as_secs_f64();
        self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        self.resident.set(i64::try_from(own.resident_memory.0).unwrap_or(i64::MAX));
        self.virtual_memory.set(i64::try_from(own.virtual_memory.0).unwrap_or(i64::MAX));
    }

    pub(super) fn started(&self, seconds: f64) {
        self.started.set(seconds);
    }
}
