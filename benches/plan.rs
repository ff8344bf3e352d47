//! Cost of planning memory QoS for a node with 300 pods that have no settings yet: layers of configuration, the module's decision,
//! arbitration, and an order of writes that the kernel accepts. Runs on a simulated cgroup v2 host, since planning writes nothing.
#![expect(clippy::expect_used, reason = "what fails must end the bench, not be measured")]

use anyhow::Context;
use criterion::{BatchSize, BenchmarkId, SamplingMode};
use qosm_agent::config::AgentConfig;
use qosm_agent::{Agent, AgentOptions, LoadedPolicy, Mode, Now};
use qosm_benches::{modules, workload};
use qosm_engine::{Compiler, Engine};
use qosm_host::simulated::Spec;
use qosm_host::{Driver, Host};
use qosm_model::pod::{Pod, Tier};
use qosm_model::unit::Bytes;

const PODS: u32 = 300;

fn main() -> anyhow::Result<()> {
    let mut criterion = qosm_benches::criterion()?;
    let engine = Engine::new()?;
    let policy = modules::load(&engine, "memory-qos", None, &Compiler::InProcess)?;
    let pods = workload::pods(PODS);

    let mut first = agent(&engine, &policy, &pods)?;
    let planned = plan(&mut first, &pods);
    first.health().map_err(anyhow::Error::msg)?;
    let least = pods.len() * 3;
    anyhow::ensure!(
        planned >= least,
        "{planned} writes are planned, fewer than the {least} of min, low and high of each pod"
    );

    let mut group = criterion.benchmark_group("plan");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.bench_function(BenchmarkId::new("memory-qos", PODS), |b| {
        b.iter_batched_ref(
            || agent(&engine, &policy, &pods).expect("made one just before"),
            |agent| plan(agent, &pods),
            BatchSize::PerIteration,
        );
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn agent(engine: &Engine, policy: &LoadedPolicy, pods: &[Pod]) -> anyhow::Result<Agent> {
    let memory = Bytes(512 << 30);
    let spec = Spec { driver: Some(Driver::Systemd), cpus: 64, memory, memory_available: memory, ..Spec::default() };
    let mut host = Host::simulated(&spec)?;
    for tier in Tier::ALL {
        let path = host.tier_path(tier);
        host.create(&path)?;
    }
    for pod in pods {
        host.provision(pod).with_context(|| format!("no cgroups for {}", pod.key()))?;
    }
    Ok(Agent::new(AgentOptions {
        host,
        engine: engine.clone(),
        policies: vec![policy.clone()],
        load_failed: Vec::new(),
        config: AgentConfig::default(),
        mode: Mode::Plan,
        create_cgroups: false,
        journal: None,
        metrics: std::sync::Arc::default(),
    })?)
}

fn plan(agent: &mut Agent, pods: &[Pod]) -> usize {
    agent.update(workload::sources(pods), Now::default());
    agent.step(Now::default()).decisions.len()
}
