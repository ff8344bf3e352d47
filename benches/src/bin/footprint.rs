//! The promise: the program as shipped stays small. Measures `qosm agent --kubernetes` with the default modules and 100 pods: resident
//! memory, its private and mapped parts, and the number of descriptors for each pod.
//!
//! The pods are objects of a real API server without running containers; the bench creates their cgroups as a kubelet does. Needs an API
//! server with the CRDs in `$KUBECONFIG`, and root; `make bench` provides both.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::{length, modules, workload};
use qosm_cluster::policy_module::PolicyModule;
use qosm_model::pod::{ContainerCgroup, Pod};
use serde_json::json;
use tokio::runtime::Runtime;

const PODS: u32 = 100;
const NODE: &str = "footprint-node";
const NODE_WITHOUT_PODS: &str = "footprint-node-without-pods";
/// Field manager of the objects.
const WRITER: &str = "qosm-footprint";
/// Number of knobs that CPU Burst holds: for each pod with one container, a burst on each of its two groups.
const KNOBS: usize = 2 * PODS as usize;
/// Maximum time until the agent has all objects, and has written everything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time until the memory that only the start needed is returned.
const SETTLING: Duration = Duration::from_secs(60);
/// Duration of the measurement after that.
const WATCHING: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let program = qosm_benches::target_directory()?.join("release/qosm");
    ensure!(program.is_file(), "{} is not there: run `make build` first", program.display());
    // Client and agent share only the API server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(async { Client::try_default().await });
    let client = client.context("no API server: set KUBECONFIG, or run `make bench ARGS=\"--bench footprint\"`")?;
    let objects = Objects { runtime, client };
    objects.remove().context("what an earlier run left cannot be removed")?;
    let measured = measure(&objects, &program);
    let removed = objects.remove();
    measured?;
    removed
}

fn measure(objects: &Objects, program: &Path) -> anyhow::Result<()> {
    objects.make_nodes_and_modules()?;
    // Dropping the tree removes its cgroups; the first agent measures a node without pods.
    let uids = objects.make_pods()?;
    let tree = Tree::plant(uids.into_iter().zip(workload::pods(PODS)).map(started).collect())?;
    let empty = Agent::start(program, &tree, NODE_WITHOUT_PODS)?;
    empty.wait_for(0)?;
    sleep(length(Duration::from_secs(5), Duration::from_secs(2)));
    let base = empty.sizes()?;
    drop(empty);

    let agent = Agent::start(program, &tree, NODE)?;
    agent.wait_for(KNOBS)?;
    sleep(length(SETTLING, Duration::from_secs(2)));
    let early = agent.sizes()?;
    let begun = Instant::now();
    let mut seen = vec![early];
    while begun.elapsed() < length(WATCHING, Duration::from_secs(2)) {
        sleep(Duration::from_secs(1));
        seen.push(agent.sizes()?);
    }
    report(base, &seen, agent.peak()?)
}

fn report(base: Sizes, seen: &[Sizes], peak: f64) -> anyhow::Result<()> {
    let figure = |of: fn(&Sizes) -> f64| Figure::of(seen.iter().map(of).collect());
    let most = seen.iter().map(|sizes| sizes.resident).fold(0.0, f64::max);
    let descriptors = figure(|sizes| sizes.descriptors);
    let a_pod = (descriptors.median - base.descriptors) / f64::from(PODS);
    let (resident, own, file, shared) = (
        figure(|sizes| sizes.resident),
        figure(|sizes| sizes.anonymous),
        figure(|sizes| sizes.file),
        figure(|sizes| sizes.proportional),
    );
    println!("footprint/agent/{PODS}");
    println!(
        "    resident {:.1} MiB (at most {most:.1} in that time, {peak:.1} since its start): {:.1} anonymous, {:.1} of files; proportional set size {:.1} MiB",
        resident.median, own.median, file.median, shared.median
    );
    println!(
        "    {:.0} descriptors, {:.0} of them without pods: {a_pod:.2} a pod; {:.0} threads",
        descriptors.median,
        base.descriptors,
        figure(|sizes| sizes.threads).median
    );
    println!("    without pods: {:.1} MiB resident, {:.1} anonymous", base.resident, base.anonymous);
    let figures = [
        ("resident MiB", resident),
        ("most MiB", Figure::once(most)),
        ("peak MiB", Figure::once(peak)),
        ("anonymous MiB", own),
        ("file MiB", file),
        ("proportional MiB", shared),
        ("descriptors", descriptors),
        ("descriptors without pods", Figure::once(base.descriptors)),
        ("descriptors a pod", Figure::once(a_pod)),
        ("threads", figure(|sizes| sizes.threads)),
    ];
    let figures: Figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    figures::write("footprint", &figures)
}

/// The pod as the host needs it to create the cgroups: with the API server's UID, and its container in a cgroup named by its ID.
fn started((uid, mut pod): (String, Pod)) -> Pod {
    for container in &mut pod.containers {
        container.cgroup = ContainerCgroup::Named(container_id(&uid));
    }
    Pod { uid, ..pod }
}

/// A container ID of 64 hexadecimal digits, as runtimes assign it.
fn container_id(uid: &str) -> String {
    let digits: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
    digits.repeat(2)
}

/// The objects on the API server.
struct Objects {
    runtime: Runtime,
    client: Client,
}

impl Objects {
    fn make_nodes_and_modules(&self) -> anyhow::Result<()> {
        for name in [NODE, NODE_WITHOUT_PODS] {
            let node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))?;
            self.runtime.block_on(self.nodes().create(&PostParams::default(), &node)).context("no node")?;
        }
        for name in modules::DEFAULT {
            let module = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": name},
                "spec": {"module": format!("builtin:{name}")}});
            let apply = PatchParams::apply(WRITER).force();
            self.runtime.block_on(self.modules().patch(name, &apply, &Patch::Apply(&module))).context("no module")?;
        }
        Ok(())
    }

    /// Creates the pods, sets the status of their containers to running, and returns the UIDs.
    fn make_pods(&self) -> anyhow::Result<Vec<String>> {
        let pods = self.pods();
        let mut uids = Vec::new();
        for number in 0..PODS {
            let name = format!("footprint-{number}");
            let pod = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": "footprint"}, "annotations": {
                    "koordinator.sh/cpuBurst": r#"{"policy":"auto"}"#, "koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#}},
                "spec": {"nodeName": NODE, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
                    "terminationGracePeriodSeconds": 0, "containers": [{"name": "app", "image": "none", "resources": {
                        "requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}}]},
            }))?;
            let made = self.runtime.block_on(pods.create(&PostParams::default(), &pod));
            let uid = made.context("no pod")?.metadata.uid.context("the API server gave a pod no UID")?;
            let status = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{
                "name": "app", "image": "none", "imageID": "none", "ready": true, "started": true, "restartCount": 0,
                "containerID": format!("containerd://{}", container_id(&uid)),
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
            let (plainly, status) = (PatchParams::default(), Patch::Strategic(&status));
            let written = self.runtime.block_on(pods.patch_status(&name, &plainly, &status));
            written.with_context(|| format!("pod {name} cannot be said to run"))?;
            uids.push(uid);
        }
        Ok(uids)
    }

    /// Removes what [`Self::make_pods`] and [`Self::make_nodes_and_modules`] created; missing objects are no error.
    fn remove(&self) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let ours = kube::api::ListParams::default().labels("app=footprint");
        self.runtime.block_on(async {
            self.pods().delete_collection(&now, &ours).await?;
            for name in [NODE, NODE_WITHOUT_PODS] {
                is_gone(self.nodes().delete(name, &now).await)?;
            }
            for name in modules::DEFAULT {
                is_gone(self.modules().delete(name, &now).await)?;
            }
            anyhow::Ok(())
        })
    }

    fn nodes(&self) -> Api<k8s_openapi::api::core::v1::Node> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::default_namespaced(self.client.clone())
    }

    fn modules(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<PolicyModule>(&()))
    }
}

fn is_gone<T>(removed: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match removed {
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// The agent, which is killed on drop.
struct Agent {
    program: std::path::PathBuf,
    process: Child,
    state: tempfile::TempDir,
}

impl Agent {
    fn start(program: &Path, tree: &Tree, node: &str) -> anyhow::Result<Self> {
        let state = tempfile::tempdir().context("no folder for the agent's state")?;
        let mut agent = Command::new(program);
        agent.args(["agent", "--kubernetes", "--node-name", node, "--metrics-listen", "127.0.0.1:0"]);
        agent.args(["--cgroup-driver", "cgroupfs", "--cgroup-root"]).arg(tree.root());
        agent.arg("--module-dir").arg(modules::directory()?).arg("--state-dir").arg(state.path());
        agent.arg("--admin-socket").arg(state.path().join("admin.sock"));
        agent.env("QOSM_LOG", "warn").env_remove("QOSM_ADMIN_SOCKET").stdin(Stdio::null());
        let process = agent.spawn().context("the agent cannot be started")?;
        Ok(Self { program: program.to_owned(), process, state })
    }

    /// Waits until the agent answers, runs its modules, and holds this number of knobs.
    fn wait_for(&self, knobs: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let (policies, held) = (self.asked("policies"), self.asked("knobs"));
            let policies = policies.as_ref().and_then(|answer| answer.as_array().map(Vec::len));
            let held = held.as_ref().and_then(|answer| answer["held"].as_array().map(Vec::len));
            if policies == Some(modules::DEFAULT.len()) && held.is_some_and(|held| held >= knobs) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "the agent runs {policies:?} policies and holds {held:?} knobs, not {} and {knobs}",
                modules::DEFAULT.len()
            );
            sleep(Duration::from_millis(300));
        }
    }

    fn asked(&self, noun: &str) -> Option<serde_json::Value> {
        let mut get = Command::new(&self.program);
        get.args(["get", noun, "--output", "json", "--admin-socket"]).arg(self.state.path().join("admin.sock"));
        let answer = get.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        serde_json::from_slice(&answer.stdout).ok()
    }

    fn sizes(&self) -> anyhow::Result<Sizes> {
        let status = self.file("status")?;
        let of_status = |name| number(&status, name).map(|kib| kib / 1024.0);
        let folder = format!("/proc/{}/fd", self.process.id());
        let descriptors = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?.count();
        Ok(Sizes {
            resident: of_status("VmRSS")?,
            anonymous: of_status("RssAnon")?,
            file: of_status("RssFile")?,
            proportional: number(&self.file("smaps_rollup")?, "Pss")? / 1024.0,
            descriptors: figures::float(descriptors),
            threads: number(&status, "Threads")?,
        })
    }

    /// Peak resident memory in MiB.
    fn peak(&self) -> anyhow::Result<f64> {
        Ok(number(&self.file("status")?, "VmHWM")? / 1024.0)
    }

    fn file(&self, name: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{name}", self.process.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has the agent ended?"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Resources of a process at one moment; memory in MiB.
#[derive(Clone, Copy)]
struct Sizes {
    resident: f64,
    anonymous: f64,
    file: f64,
    proportional: f64,
    descriptors: f64,
    threads: f64,
}

/// The number after `name:` in a file of `/proc`.
fn number(text: &str, name: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|line| line.split_whitespace().next()).with_context(|| format!("there is no {name}"))?;
    Ok(f64::from(word.parse::<u32>().with_context(|| format!("{name} is `{word}`"))?))
}
