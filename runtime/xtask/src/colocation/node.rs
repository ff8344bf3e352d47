//! The node's two pods, and the agent's configuration.

use serde_json::{Value, json};

use crate::demo::agent::Start;
use crate::demo::cgroup::Pod;

/// The latency-sensitive server, which requests a CPU.
pub(crate) const WEB: Pod =
    Pod { tier: "burstable", uid: "3f0c58a1-6f35-4a8e-8a53-5b61c2d7e9a4", container: "apache", shares: 1024 };
/// Batch work, which requests nothing.
pub(crate) const BATCH: Pod =
    Pod { tier: "besteffort", uid: "9b7de0f2-2c64-4e19-b0b5-71a6f4c8d305", container: "gzip", shares: 2 };

/// How batch work is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// By the CPUs that it may run on.
    Cpuset,
    /// By a CFS quota.
    CfsQuota,
}

impl Mode {
    /// A cpuset has at least two CPUs, which is a large part of a small machine.
    pub(crate) fn for_cpus(cpus: usize) -> Self {
        if cpus < 8 { Self::CfsQuota } else { Self::Cpuset }
    }

    /// The value of `cpuSuppressPolicy`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cpuset => "cpuset",
            Self::CfsQuota => "cfsQuota",
        }
    }
}

/// Files and flags that an agent is started with.
#[derive(Debug)]
pub(crate) struct Node {
    config_map: String,
    manifests: [(&'static str, String); 2],
    agent_config: String,
}

impl Node {
    /// The input for starting the demo's agent.
    pub(crate) fn start(&self) -> Start<'_> {
        Start {
            config_map: &self.config_map,
            manifests: &self.manifests,
            agent_config: &self.agent_config,
            pod: "bench/web",
        }
    }
}

/// The pods, the strategy, and the agent's policies.
pub(crate) fn node(policies: &Value, mode: Mode) -> Node {
    let strategy = json!({"clusterStrategy": {"enable": true, "cpuSuppressPolicy": mode.as_str()}});
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"resource-threshold-config": strategy.to_string()},
    });
    let pod = |name: &str, pod: Pod, class: &str, resources: Value| {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "bench", "uid": pod.uid, "labels": {"koordinator.sh/qosClass": class}},
            "spec": {"containers": [{"name": pod.container, "resources": resources}]},
        });
        manifest.to_string()
    };
    let manifests = [
        ("web.json", pod("web", WEB, "LS", json!({"requests": {"cpu": "1"}}))),
        ("batch.json", pod("batch", BATCH, "BE", json!({}))),
    ];
    let agent = json!({"policies": policies});
    Node { config_map: config_map.to_string(), manifests, agent_config: agent.to_string() }
}
