//! `qosm agent`: settings, wiring, run, drain.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::{AgentConfig, OnShutdown, PolicyConfig};
use qosm_agent::fetch::Fetcher;
use qosm_agent::journal::Journal;
use qosm_agent::roster::{EntriesFile, News, Recruiter, Recruits, Roster, Tools};
use qosm_agent::service::Request;
use qosm_agent::{Agent, Metrics, Mode, Now, Parts, admin, service};
use qosm_cluster::kubernetes::{Connection, Kubernetes, Owner};
use qosm_cluster::{Folder, Source};
use qosm_engine::Engine;
use qosm_model::problem::chain;
use qosm_registry::Library;
use tokio::sync::oneshot;

use crate::args::{AgentArgs, KubernetesArgs, LogFormat, MetricsListen, OnShutdownArg};
use crate::print::Usage;
use crate::{Answer, document, host, modules};

pub(crate) fn run(args: AgentArgs) -> anyhow::Result<Answer> {
    log(args.log_format);
    // Before it is read: what is changed from here on is read again.
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
    // In Kubernetes the policies are PolicyModules, which anybody can see; nothing runs that is not asked for.
    let entries = modules::entries_with_shadows(&args.modules, &args.shadows, from_file, !args.kubernetes.kubernetes)?;

    let cache = modules::cache(&args.state_dir.join("modules"))?;
    let open_state = || {
        Dir::open_ambient_dir(&args.state_dir, ambient_authority())
            .with_context(|| format!("cannot open the state folder {}", args.state_dir.display()))
    };
    let boot = std::fs::read_to_string(args.host.proc.join("sys/kernel/random/boot_id"))
        .context("cannot tell this boot from earlier ones")?;
    let journal = Journal::open(&open_state()?, &args.state_dir, boot.trim())?;
    raise_file_limit();
    let host = host::open(&args.host)?;

    let engine = Engine::new()?;
    let compiler = modules::compiler()?;
    let default_modules = modules::default_dir(args.modules.module_dir.as_deref());
    for entry in &entries {
        entry.granted()?;
    }
    let count = entries.len();
    let metrics = Arc::new(Metrics::default());
    let library = Library::open(config.registries.clone(), &args.state_dir.join("artifacts"))?;
    let (news, heard) = mpsc::channel();
    let woken = news.clone();
    // The thread that hears it ends with the agent.
    let fetcher = Fetcher::start(library, Arc::clone(&metrics), move || drop(woken.send(News::Fetched)))
        .context("cannot start the thread that fetches modules")?;
    let mut recruiter = Recruiter::new(Tools {
        engine: engine.clone(),
        entries,
        default_modules,
        cache,
        compiler,
        state: open_state()?,
        fetcher: Some(fetcher),
    });
    let begun = recruiter.begin();
    let Roster { policies, unloaded, .. } = begun.clone();
    // With PolicyModules it is tidied once it is known which of them run here.
    if !args.kubernetes.kubernetes {
        recruiter.tidy(&policies);
    }
    let mut agent = Agent::new(Parts {
        host,
        engine,
        policies: policies.into_iter().map(|enlisted| enlisted.policy).collect(),
        unloaded,
        config,
        mode: Mode::Enforce,
        make_cgroups: args.create_cgroups,
        journal: Some(journal),
        metrics: Arc::clone(&metrics),
    })?;
    // With what it says beside the policies: that one stands in for another, and why.
    agent.enlist(begun.clone(), Now::default());

    let (requests, received) = mpsc::channel();
    let recruits = Recruits::start(recruiter, &begun, file, (news, heard), requests.clone())
        .context("cannot start the thread that loads modules")?;
    let doors = Doors::open(&args, metrics, &requests, owner)?;
    if !rustix::process::geteuid().is_root() {
        tracing::warn!("not root: cgroups can mostly not be written; `qosm doctor` says what works here");
    }
    let version = env!("CARGO_PKG_VERSION");
    let ended = match (&args.pods, &args.kubernetes.node_name) {
        (Some(pods), _) => {
            let folder = Folder::open(pods.clone(), args.config.clone())
                .with_context(|| format!("cannot watch the folder of pods {}", pods.display()))?;
            tracing::info!(version, policies = count, "agent runs");
            serve(agent, folder, &recruits, &args, requests, &received)
        }
        (None, Some(node)) => {
            let connection = Connection { kubeconfig: args.kubernetes.cluster.kubeconfig.clone(), node: node.clone() };
            let woken = requests.clone();
            let cluster = Kubernetes::start(connection, move || drop(woken.send(Request::Woken)))?;
            agent.tell_through(cluster.outbox());
            tracing::info!(version, node, policies = count, "agent runs");
            serve(agent, cluster, &recruits, &args, requests, &received)
        }
        (None, None) => Err(Usage("--kubernetes needs --node-name".to_owned()).into()),
    };
    // Whoever still waits for the loop hears that it has ended, and is waited for.
    drop(received);
    doors.close();
    ended
}

/// The policies of the agent's own file, as they are when it is read again.
fn entries_file(args: &AgentArgs) -> Option<EntriesFile> {
    let path = args.agent_config.clone()?;
    let (modules, shadows, with_defaults) = (args.modules.clone(), args.shadows.clone(), !args.kubernetes.kubernetes);
    Some(EntriesFile::new(path.clone(), move || {
        let read = || -> anyhow::Result<Vec<PolicyConfig>> {
            let config: AgentConfig = document::read(&path)?;
            let entries = modules::entries_with_shadows(&modules, &shadows, config.policies, with_defaults)?;
            for (place, entry) in entries.iter().enumerate() {
                entry.granted()?;
                if entries.iter().take(place).any(|other| other.name == entry.name) {
                    anyhow::bail!("policy `{}` is configured twice; give one of them another name", entry.name);
                }
            }
            Ok(entries)
        };
        read().map_err(|error| format!("{error:#}"))
    }))
}

fn serve(
    mut agent: Agent,
    source: impl Source,
    recruits: &Recruits,
    args: &AgentArgs,
    requests: mpsc::Sender<Request>,
    received: &mpsc::Receiver<Request>,
) -> anyhow::Result<Answer> {
    if let Err(error) = agent.start_alarms(move || drop(requests.send(Request::Woken))) {
        tracing::warn!(error = chain(&error), "policies are evaluated by their intervals only");
    }
    let tick = Duration::from_millis(args.tick_millis);
    let ended = service::run(agent, source, Some(recruits), tick, received);
    // Whoever else listens on the socket's path by now is not ours to remove; an agent that ends in order is alone with it.
    std::fs::remove_file(&args.admin_socket).ok();
    ended?;
    Ok(Answer::Good)
}

/// Settles what `onShutdown: auto` means here: without a DaemonSet nobody follows, and everything is put back.
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

/// The host keeps a descriptor for each file that it reads at each tick: 300 containers come to more than the usual 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is; on a full node files are opened for each reading");
    }
}

/// What modules say, and nothing else, for whoever tries one out.
pub(crate) fn log_modules() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("QOSM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off,qosm_agent::arbitrate=info"));
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    base.without_time().with_target(false).with_ansi(false).init();
}

pub(crate) fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("QOSM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // It calls every request that fails an error. What came of it is told by whoever made the request, with the way out.
    let filter = match "kube_client::client=off".parse() {
        Ok(directive) if !filter.to_string().contains("kube_client") => filter.add_directive(directive),
        _ => filter,
    };
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            base.with_ansi(colour).init();
        }
        LogFormat::Json => base.json().init(),
    }
}

/// Listens where metrics and health are asked for.
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

/// The sockets and the signals, on a thread of their own: tokio stays out of the loop.
struct Doors {
    close: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Doors {
    /// How long whoever is being answered may take to hear the end of it.
    const LAST_WORDS: Duration = Duration::from_secs(5);

    fn open(
        args: &AgentArgs,
        metrics: Arc<Metrics>,
        requests: &mpsc::Sender<Request>,
        owner: Option<Owner>,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).enable_all().build()?;
        let guard = runtime.enter();
        let (close, closed) = oneshot::channel::<()>();
        let socket = admin::bind_admin(&args.admin_socket)
            .with_context(|| format!("cannot listen on the admin socket {}", args.admin_socket.display()))?;
        let (end, ended) = oneshot::channel::<()>();
        let admin = runtime.spawn(admin::serve_admin(socket, requests.clone(), async { drop(ended.await) }));
        if let MetricsListen::At(address) = args.metrics_listen {
            runtime.spawn(admin::serve_metrics(listen(address)?, metrics, requests.clone()));
        }
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let requests = requests.clone();
        runtime.spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
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
            .name("doors".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    drop(closed.await);
                    drop(end);
                    if tokio::time::timeout(Self::LAST_WORDS, admin).await.is_err() {
                        tracing::warn!("a client of the admin socket did not take its answer");
                    }
                });
            })
            .context("cannot start the thread that serves the sockets")?;
        Ok(Self { close, thread })
    }

    /// Takes no more requests, and returns once every answer was taken.
    fn close(self) {
        drop(self.close);
        if self.thread.join().is_err() {
            tracing::warn!("the thread that serves the sockets had panicked");
        }
    }
}
