//! Load of a large fleet on an API server, in compressed time: ten thousand reports as agents write them, a PolicyModule that changes under
//! many watches, and the resources of one agent and the controller. Needs an API server with the CRDs in `$KUBECONFIG`, and root for the
//! agent; `make bench-fleet` provides both.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use qosm_benches::figures::Figure;
use qosm_cluster::node_report::{
    NodePolicyReport, NodePolicyReportSpec, NodePolicyReportStatus, ReportedCapabilities, ReportedCounts,
    ReportedPolicy,
};
use qosm_cluster::policy_module::PolicyModule;
use serde_json::json;

/// Concurrent requests: a hundred writes a second come to about this number if each takes a while.
const AT_ONCE: usize = 32;
/// Open watches of PolicyModules. Every node has one; the bench measures the cost of each.
const WATCHES: u32 = 500;
/// Pods of the node for the measurement of one agent.
const PODS: u32 = 250;
const NODE: &str = "fleet-node";

fn main() -> anyhow::Result<()> {
    let nodes: u32 = std::env::args().nth(1).map_or(Ok(10_000), |nodes| nodes.parse()).context("how many nodes?")?;
    let program = qosm_benches::target_directory()?.join("release/qosm");
    ensure!(program.is_file(), "{} is not there: run `make build` first", program.display());
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let client = Client::try_default().await.context("no API server: set KUBECONFIG, or run `make bench-fleet`")?;
        reports(&client, nodes).await?;
        watches(&client).await?;
        controller(&program, nodes).await?;
        agent(&client, &program).await
    })
}

/// A report as an agent with the default modules writes it.
fn report(generation: i64) -> NodePolicyReportStatus {
    let policy = |name: &str| ReportedPolicy {
        name: name.into(),
        generation: Some(generation),
        module: format!("builtin:{name}"),
        version: format!("{name}@0.1.0"),
        digest: format!("sha256:{}", "a".repeat(64)),
        mode: "enforce".into(),
        state: "running".into(),
        ..ReportedPolicy::default()
    };
    let knobs = ["cfs-quota", "cfs-burst", "memory-min", "memory-low", "memory-high", "wmark-ratio", "cpuset-mems"];
    NodePolicyReportStatus {
        agent_version: env!("CARGO_PKG_VERSION").into(),
        summary: "3/3".into(),
        policies: ["cpu-burst", "memory-locality", "memory-qos"].map(policy).into(),
        counts: ReportedCounts { pods: 100, managed_pods: 40, knobs: 200, ..ReportedCounts::default() },
        capabilities: ReportedCapabilities {
            cgroup: "v2".into(),
            numa_nodes: 2,
            knobs: knobs.map(|knob| (knob.to_owned(), "native".to_owned())).into(),
        },
        ..NodePolicyReportStatus::default()
    }
}

async fn reports(client: &Client, nodes: u32) -> anyhow::Result<()> {
    let api: Api<NodePolicyReport> = Api::all(client.clone());
    println!("{nodes} nodes, {AT_ONCE} requests at a time");
    let create = |node: u32| {
        let api = api.clone();
        async move {
            let report = NodePolicyReport {
                metadata: ObjectMeta { name: Some(format!("fleet-{node}")), ..ObjectMeta::default() },
                spec: NodePolicyReportSpec { node: format!("fleet-{node}") },
                status: None,
            };
            match api.create(&PostParams::default(), &report).await {
                Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
                answer => answer.map(drop),
            }
        }
    };
    measure("reports made", nodes, create).await?;
    for (what, generation) in [("first statuses written", 1), ("statuses written after a change", 2)] {
        let write = |node: u32| {
            let api = api.clone();
            let patch =
                json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "status": report(generation)});
            async move {
                let params = PatchParams::apply("qosm").force();
                api.patch_status(&format!("fleet-{node}"), &params, &Patch::Apply(&patch)).await.map(drop)
            }
        };
        measure(what, nodes, write).await?;
    }
    let request = serde_json::to_vec(&report(2))?.len();
    let stored = serde_json::to_vec(&api.get("fleet-0").await?)?.len();
    println!("  a write carries {request} bytes; the object read back has {stored} bytes");
    Ok(())
}

/// Runs one request for each node, and prints the requests per second and the time of one.
async fn measure<F>(what: &str, nodes: u32, request: impl Fn(u32) -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<(), kube::Error>>,
{
    let begun = Instant::now();
    let mut millis: Vec<f64> = stream::iter(0..nodes)
        .map(|node| {
            let request = request(node);
            async move {
                let begun = Instant::now();
                request.await.map(|()| begun.elapsed().as_secs_f64() * 1e3)
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
        .with_context(|| what.to_owned())?;
    let seconds = begun.elapsed().as_secs_f64();
    millis.sort_unstable_by(f64::total_cmp);
    let last = millis.get(millis.len() * 99 / 100).copied().unwrap_or_default();
    let figure = Figure::of(millis);
    println!(
        "  {what}: {:.0} a second; one takes {:.1} ms, 99 of 100 at most {last:.1} ms",
        f64::from(nodes) / seconds,
        figure.median
    );
    Ok(())
}

/// Changes a PolicyModule under many watches, and measures the time until all received it.
async fn watches(client: &Client) -> anyhow::Result<()> {
    let module = json!({
        "apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": "fleet"},
        "spec": {"module": "builtin:cpu-burst", "mode": "shadow", "nodeSelector": {"matchLabels": {"none": "such"}}},
    });
    let resource = ApiResource::erase::<PolicyModule>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let apply = |priority: i32| {
        let mut object = module.clone();
        object["spec"]["priority"] = priority.into();
        let api = api.clone();
        async move { api.patch("fleet", &PatchParams::apply("fleet").force(), &Patch::Apply(&object)).await }
    };
    apply(0).await?;
    let seen = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..WATCHES {
        let (seen, resource) = (Arc::clone(&seen), resource.clone());
        // A separate connection, as every node has its own.
        let client = Client::try_default().await?;
        tasks.push(tokio::spawn(async move {
            let api: Api<DynamicObject> = Api::all_with(client, &resource);
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                if matches!(event, Ok(watcher::Event::InitDone | watcher::Event::Apply(_))) {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let reached = |count: u64| {
        let seen = Arc::clone(&seen);
        async move {
            let begun = Instant::now();
            while seen.load(Ordering::Relaxed) < count {
                ensure!(begun.elapsed() < Duration::from_secs(120), "a watch has missed a change");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        }
    };
    reached(u64::from(WATCHES)).await?;
    let mut millis = Vec::new();
    for round in 1..=5 {
        let begun = Instant::now();
        apply(round).await?;
        reached(u64::from(WATCHES) * (u64::from(round.unsigned_abs()) + 1)).await?;
        millis.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let bytes = serde_json::to_vec(&api.get("fleet").await?)?.len();
    let all = Figure::of(millis);
    println!(
        "  a PolicyModule changes under {WATCHES} watches: all have it after {:.0} ms; {bytes} bytes to each",
        all.median
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    api.delete("fleet", &Default::default()).await?;
    Ok(())
}

async fn controller(program: &Path, nodes: u32) -> anyhow::Result<()> {
    let mut process =
        Running(Command::new(program).args(["controller", "--metrics-listen", "none"]).stderr(Stdio::null()).spawn()?);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let kib = process.resident_kib()?;
    println!("  the controller with {nodes} reports: {:.1} MiB", f64::from(kib) / 1024.0);
    Ok(())
}

/// Measures one agent with the pods of a full node. No container runs: only the agent's knowledge of the pods is measured.
async fn agent(client: &Client, program: &Path) -> anyhow::Result<()> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))?;
    if let Err(error) = nodes.create(&PostParams::default(), &node).await
        && !matches!(&error, kube::Error::Api(answer) if answer.code == 409)
    {
        return Err(error.into());
    }
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client.clone());
    for number in 0..PODS {
        let pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("fleet-{number}"), "annotations": {
                "koordinator.sh/cpuBurst": r#"{"policy":"auto"}"#, "koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#}},
            "spec": {"nodeName": NODE, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "app", "image": "none", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}]},
        }))?;
        if let Err(error) = pods.create(&PostParams::default(), &pod).await
            && !matches!(&error, kube::Error::Api(answer) if answer.code == 409)
        {
            return Err(error.into());
        }
    }
    let state = tempfile::tempdir()?;
    for name in ["cpu-burst", "memory-locality", "memory-qos"] {
        let module = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": name},
            "spec": {"module": format!("builtin:{name}")}});
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<PolicyModule>(&()));
        api.patch(name, &PatchParams::apply("fleet").force(), &Patch::Apply(&module)).await?;
    }
    let mut process = Running(
        Command::new(program)
            .args(["agent", "--kubernetes", "--node-name", NODE, "--metrics-listen", "none"])
            .arg("--state-dir")
            .arg(state.path())
            .arg("--admin-socket")
            .arg(state.path().join("admin.sock"))
            .args(["--cgroup-root", "/qosm-bench-fleet"])
            .stderr(Stdio::null())
            .spawn()?,
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    let kib = process.resident_kib()?;
    println!("  an agent with {PODS} pods: {:.1} MiB", f64::from(kib) / 1024.0);
    drop(process);
    let listed: Vec<_> = pods.list(&Default::default()).await?.items.iter().map(|pod| pod.name_any()).collect();
    for name in listed.iter().filter(|name| name.starts_with("fleet-")) {
        pods.delete(name, &kube::api::DeleteParams::default().grace_period(0)).await.ok();
    }
    nodes.delete(NODE, &Default::default()).await.map(drop).context("the node stays")
}

/// A process that is killed on drop.
struct Running(Child);

impl Running {
    fn resident_kib(&mut self) -> anyhow::Result<u32> {
        ensure!(self.0.try_wait()?.is_none(), "it ended before it was measured");
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is no number")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
