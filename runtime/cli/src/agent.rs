//! `qosm agent`: settings, wiring, run, drain.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::{AgentConfig, OnShutdown, PolicyConfig};
use qosm_agent::fetch::Fetcher;
use qosm_agent::journal::{Entries, Journal};
use qosm_agent::nri::NriThread;
use qosm_agent::policy_set::{EntriesFile, LoaderEvent, LoaderHandle, LoaderOptions, ModuleLoader, PolicySet};
use qosm_agent::service::Request;
use qosm_agent::{Agent, AgentOptions, DecisionLog, Metrics, Mode, Now, admin, ending, service};
use qosm_cluster::kubernetes::{Connection, Kubernetes, Owner};
use qosm_cluster::{Folder, Source};
use qosm_engine::Engine;
use qosm_host::{Host, Released, RootLock, release_unused_memory};
use qosm_model::problem::chain;
use qosm_open_module::{cache, compiler, default_dir};
use qosm_registry::Store;
use qosm_terminal::interrupt::{PendingSignals, Stop};
use qosm_terminal::{Answer, Usage, block_on, document, log};
use tokio::sync::oneshot;

use crate::args::{AgentArgs, KubernetesArgs, MetricsListen, OnShutdownArg};
use crate::{confine, host, modules, mover};

pub(crate) fn run(args: AgentArgs, stop: PendingSignals) -> anyhow::Result<Answer> {
    log::start(args.log_format);
    // Before the file is read, so that later changes are noticed.
    let file = entries_file(&args);
    let mut config: AgentConfig = args.agent_config.as_deref().map(document::read).transpose()?.unwrap_or_default();
    match args.on_shutdown {
        Some(OnShutdownArg::Keep) => config.on_shutdown = OnShutdown::Keep,
        Some(OnShutdownArg::Restore) => config.on_shutdown = OnShutdown::Restore,
        Some(OnShutdownArg::Auto) => config.on_shutdown = OnShutdown::Auto,
        None => {}
    }
    if args.host.resctrl.is_some() {
        config.resctrl.path.clone_from(&args.host.resctrl);
    }
    let owner = owner(&args.kubernetes, &mut config)?;
    let from_file = std::mem::take(&mut config.policies);
    if let Some(file) = &args.agent_config {
        check_entries(&from_file).map_err(|Usage(error)| Usage(format!("{}: policies: {error}", file.display())))?;
    }
    // In Kubernetes, policies come from PolicyModules; no default policy runs by itself.
    let entries = modules::entries_with_shadows(&args.modules, &args.shadows, from_file, !args.kubernetes.kubernetes)?;
    check_entries(&entries)?;
    let folder = args.pods.clone().map(|pods| Folder::open(pods, args.config.clone())).transpose()?;
    let default_modules = default_dir(args.modules.module_dir.as_deref());
    // Landlock allows only paths that exist, so these are created first. From here on the agent has what it needs and no more.
    let as_root = |error: anyhow::Error| explain_denied(error, rustix::process::geteuid().is_root());
    let cache = cache(&args.state_dir.join("modules")).map_err(as_root)?;
    make_folder_of(&args.admin_socket).map_err(as_root)?;
    raise_file_limit();
    if let Some(mode) = args.confine {
        config.confinement.mode = mode.into();
    }
    let decision_log = args.decision_log.as_ref().map(|path| decision_log(path, &args.kubernetes)).transpose()?;
    let page_mover = mover::start(&args, &entries);
    let compiler = compiler();
    let confined = confine::agent(&args, &config, &entries, &default_modules)?;
    let stop = stop.receive()?;

    let open_state = || {
        Dir::open_ambient_dir(&args.state_dir, ambient_authority())
            .with_context(|| format!("cannot open the state folder {}", args.state_dir.display()))
    };
    let boot = std::fs::read_to_string(args.host.proc.join("sys/kernel/random/boot_id"))
        .context("cannot read the ID of this boot")?;
    let journal = Journal::open(&open_state()?, &args.state_dir, boot.trim())?;
    let mut host = host::open(&args.host)?;
    host.use_page_mover(page_mover).context("cannot start the thread that speaks to the page mover")?;
    let lock = lock_root(&mut host, &journal, &args)?;
    let count = entries.len();
    let metrics = Arc::new(Metrics::default());
    let nri = config.nri.clone();
    let (sender, events) = mpsc::channel();
    let (registries, artifacts) = (config.registries.clone(), args.state_dir.join("artifacts"));
    let (fetched, compiled, counted, state) = (sender.clone(), sender.clone(), Arc::clone(&metrics), open_state()?);
    // Modules may have to be compiled, or fetched. A signal to end that arrives meanwhile comes first.
    let loaded = stop.unless_asked("modules", move || -> anyhow::Result<_> {
        let engine = Engine::new()?;
        let store = Store::open(registries, &artifacts)?;
        // The receiving thread ends with the agent.
        let fetcher = Fetcher::start(store, counted, move || drop(fetched.send(LoaderEvent::Fetched)))
            .context("cannot start the thread that fetches modules")?;
        let mut loader = ModuleLoader::new(LoaderOptions {
            engine: engine.clone(),
            entries,
            default_modules,
            cache,
            compiler,
            state,
            fetcher: Some(fetcher),
            events: compiled,
        });
        let begun = loader.begin();
        Ok((engine, loader, begun))
    })?;
    let Some(loaded) = loaded else { return end_early(host, &journal, &config, owner) };
    let (engine, loader, begun) = loaded?;
    let PolicySet { policies, load_failed, .. } = begun.clone();
    // With PolicyModules, unused modules are removed once it is known which PolicyModules run here.
    if !args.kubernetes.kubernetes {
        loader.remove_unused(&policies);
    }
    let mut agent = Agent::new(AgentOptions {
        host,
        engine,
        policies: policies.into_iter().map(|resolved| resolved.policy).collect(),
        load_failed,
        config,
        mode: Mode::Enforce,
        create_cgroups: args.create_cgroups,
        journal: Some(journal),
        metrics: Arc::clone(&metrics),
    })?;
    if let Some(log) = decision_log {
        agent.log_decisions(log);
    }
    if let Some(confined) = &confined {
        agent.is_confined_by(confined.landlock.clone());
    }
    // Includes the fallback modules, and the reasons for them.
    agent.apply_policy_set(begun.clone(), Now::default());

    let (requests, received) = mpsc::channel();
    let loader = LoaderHandle::start(loader, &begun, file, (sender, events), requests.clone())
        .context("cannot start the thread that loads modules")?;
    let runtime = NriThread::start(&nri, Arc::clone(&metrics), requests.clone())
        .context("cannot start the thread that speaks to the container runtime")?;
    let servers = Servers::open(&args, metrics, &requests, owner, &stop)?;
    if !rustix::process::geteuid().is_root() {
        tracing::warn!("not root: cgroups can mostly not be written; `qosm doctor` says what works here");
    }
    let version = env!("CARGO_PKG_VERSION");
    let ended = match (folder, &args.kubernetes.node_name) {
        (Some(folder), _) => {
            tracing::info!(version, policies = count, "agent runs");
            serve(agent, folder, &loader, &args, requests, &received)
        }
        (None, Some(node)) => {
            let connection = Connection { kubeconfig: args.kubernetes.cluster.kubeconfig.clone(), node: node.clone() };
            let woken = requests.clone();
            let cluster = Kubernetes::start(connection, move || drop(woken.send(Request::Woken)))?;
            agent.report_through(cluster.outbox());
            tracing::info!(version, node, policies = count, "agent runs");
            serve(agent, cluster, &loader, &args, requests, &received)
        }
        (None, None) => Err(Usage("--kubernetes needs --node-name".to_owned()).into()),
    };
    // Clients that still wait for the loop get an answer first.
    drop((received, runtime));
    servers.close();
    drop(lock);
    ended
}

/// Locks the cgroup root for this agent. With `--create-cgroups`, creates the root first if necessary.
fn lock_root(host: &mut Host, journal: &Journal, args: &AgentArgs) -> anyhow::Result<Option<RootLock>> {
    let root = args.host.cgroup_root.trim_matches('/');
    let lock = host.lock_root()?;
    if lock.is_some() || !args.create_cgroups || root.is_empty() {
        return Ok(lock);
    }
    journal.commit(&Entries { created: vec![root.to_owned()], ..Entries::default() })?;
    host.create(root)?;
    Ok(host.lock_root()?)
}

/// Ends an agent that has not started its loop: restores what the previous agent held, if the configuration says so.
fn end_early(mut host: Host, journal: &Journal, config: &AgentConfig, owner: Option<Owner>) -> anyhow::Result<Answer> {
    let restores = match owner {
        Some(owner) => block_on(async move { Ok(owner.is_gone().await) })?,
        None => config.on_shutdown == OnShutdown::Restore,
    };
    if restores {
        ending::end_early(&mut host, journal, config)?;
    } else {
        tracing::info!("agent ends before it has begun; held knobs keep their values");
    }
    Ok(Answer::Good)
}

/// Rereads the policies of the agent's own file after a change.
fn entries_file(args: &AgentArgs) -> Option<EntriesFile> {
    let path = args.agent_config.clone()?;
    let (modules, shadows, with_defaults) = (args.modules.clone(), args.shadows.clone(), !args.kubernetes.kubernetes);
    Some(EntriesFile::new(path.clone(), move || {
        let read = || -> anyhow::Result<Vec<PolicyConfig>> {
            let config: AgentConfig = document::read(&path)?;
            // As at the start, also entries that `--policy` leaves out.
            check_entries(&config.policies)?;
            let entries = modules::entries_with_shadows(&modules, &shadows, config.policies, with_defaults)?;
            check_entries(&entries)?;
            Ok(entries)
        };
        read().map_err(|error| format!("{error:#}"))
    }))
}

/// Checks that each policy has a name of its own, and grants that exist.
fn check_entries(entries: &[PolicyConfig]) -> Result<(), Usage> {
    for (place, entry) in entries.iter().enumerate() {
        entry.granted().map_err(|error| Usage(error.to_string()))?;
        if entries.iter().take(place).any(|other| other.name == entry.name) {
            return Err(Usage(format!("policy `{}` is configured twice; give one of them another name", entry.name)));
        }
    }
    Ok(())
}

fn serve(
    mut agent: Agent,
    source: impl Source,
    loader: &LoaderHandle,
    args: &AgentArgs,
    requests: mpsc::Sender<Request>,
    received: &mpsc::Receiver<Request>,
) -> anyhow::Result<Answer> {
    if let Err(error) = agent.start_alarms(move || drop(requests.send(Request::Woken))) {
        tracing::warn!(error = chain(&error), "policies are evaluated by their intervals only");
    }
    let tick = Duration::from_millis(args.tick_millis);
    let ended = service::run(agent, source, Some(loader), tick, received);
    // Here, while this agent still holds the lock: later, the socket could belong to the next agent.
    std::fs::remove_file(&args.admin_socket).ok();
    ended?;
    Ok(Answer::Good)
}

/// Opens the decision log, before the agent confines itself.
fn decision_log(path: &Path, kubernetes: &KubernetesArgs) -> anyhow::Result<DecisionLog> {
    let out: Box<dyn std::io::Write + Send> = if path.as_os_str() == "-" {
        Box::new(std::io::stdout())
    } else {
        let file = std::fs::File::options().create(true).append(true).open(path);
        Box::new(file.with_context(|| format!("--decision-log: cannot write {}", path.display()))?)
    };
    Ok(DecisionLog::new(out, kubernetes.node_name.clone().unwrap_or_default()))
}

/// Resolves `onShutdown: auto`: without `--owner` no agent follows, and everything is restored.
fn owner(args: &KubernetesArgs, config: &mut AgentConfig) -> anyhow::Result<Option<Owner>> {
    if config.on_shutdown != OnShutdown::Auto {
        return Ok(None);
    }
    let Some(owner) = &args.owner else {
        config.on_shutdown = OnShutdown::Restore;
        return Ok(None);
    };
    config.on_shutdown = OnShutdown::Keep;
    let parts = owner.strip_prefix("daemonset/").and_then(|owner| owner.split_once('/'));
    let Some((namespace, name)) = parts.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty()) else {
        return Err(Usage(format!("--owner `{owner}`: expected daemonset/NAMESPACE/NAME")).into());
    };
    Ok(Some(Owner {
        kubeconfig: args.cluster.kubeconfig.clone(),
        node: args.node_name.clone().unwrap_or_default(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }))
}

/// Adds the way out to an error of an agent that lacks root's rights to its folders.
fn explain_denied(error: anyhow::Error, is_root: bool) -> anyhow::Error {
    let is_denied = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied);
    if is_root || !is_denied {
        return error;
    }
    error.context("the agent may not use its folders without root's rights: run it as root (`sudo qosm agent …`)")
}

/// Creates the folder of the admin socket, with mode 0700. An existing folder stays as it is.
fn make_folder_of(socket: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the folder {} of the admin socket", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Raises the soft limit of open files to the hard limit. The host keeps a descriptor for each file that it reads at each tick:
/// 300 containers need more than the usual 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files cannot be raised; on a full node, files are opened for each read");
    }
}

/// Returns unused memory to the kernel after the start, and then every 600 s: a watch that lists again or a new policy set leaves some.
async fn give_back_memory() {
    const START: Duration = Duration::from_secs(20);
    const BETWEEN: Duration = Duration::from_secs(600);
    let mut wait = START;
    loop {
        tokio::time::sleep(wait).await;
        let Released { before, after } = release_unused_memory();
        tracing::debug!(before_bytes = before.0, after_bytes = after.0, "unused memory given back");
        wait = BETWEEN;
    }
}

/// Opens the listening socket for metrics and health checks.
pub(crate) fn listen(address: std::net::SocketAddr) -> anyhow::Result<tokio::net::TcpListener> {
    std::net::TcpListener::bind(address)
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        })
        .with_context(|| {
            format!("cannot listen on {address} for metrics; choose another with --metrics-listen, or `none`")
        })
}

/// The admin socket, the metrics port and the signal handler, on a separate thread: tokio stays out of the loop.
struct Servers {
    close: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Servers {
    /// Timeout of clients of the admin socket that have not read their answer at the end.
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

    fn open(
        args: &AgentArgs,
        metrics: Arc<Metrics>,
        requests: &mpsc::Sender<Request>,
        owner: Option<Owner>,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).enable_all().build()?;
        let guard = runtime.enter();
        let (close, closed) = oneshot::channel::<()>();
        let socket = admin::bind_admin(&args.admin_socket)
            .with_context(|| format!("cannot listen on the admin socket {}", args.admin_socket.display()))?;
        let (end, ended) = oneshot::channel::<()>();
        let admin = runtime.spawn(admin::serve_admin(socket, requests.clone(), async { drop(ended.await) }));
        if let MetricsListen::At(address) = args.metrics_listen {
            runtime.spawn(admin::serve_metrics(listen(address)?, metrics, args.metrics_containers, requests.clone()));
        }
        runtime.spawn(give_back_memory());
        let (asked, received) = oneshot::channel::<()>();
        stop.on_stop(move || {
            // The receiver may have ended.
            let _ = asked.send(());
        });
        let requests = requests.clone();
        runtime.spawn(async move {
            if received.await.is_err() {
                return;
            }
            let restore = match owner {
                Some(owner) => owner.is_gone().await,
                None => false,
            };
            // The loop may have ended by itself.
            requests.send(Request::ShutDown { restore, reply: None }).ok();
        });
        drop(guard);
        let thread = std::thread::Builder::new()
            .name("servers".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    drop(closed.await);
                    drop(end);
                    if tokio::time::timeout(Self::DRAIN_TIMEOUT, admin).await.is_err() {
                        tracing::warn!("a client of the admin socket did not take its answer");
                    }
                });
            })
            .context("cannot start the thread that serves the sockets")?;
        Ok(Self { close, thread })
    }

    /// Accepts no more requests, and returns once every answer was read, or after [`Self::DRAIN_TIMEOUT`].
    fn close(self) {
        drop(self.close);
        if self.thread.join().is_err() {
            tracing::warn!("the thread that serves the sockets had panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn only_an_agent_that_lacks_rights_is_to_be_run_as_root() {
        for (kind, is_root, expected) in [
            (ErrorKind::PermissionDenied, false, true),
            (ErrorKind::PermissionDenied, true, false),
            (ErrorKind::NotADirectory, false, false),
        ] {
            let error = anyhow::Error::from(std::io::Error::from(kind)).context("cannot make the folder /x");
            let said = explain_denied(error, is_root).to_string();
            assert_eq!(said.contains("run it as root"), expected, "{kind}: {said}");
        }
    }
}
