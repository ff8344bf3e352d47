//! `qosm agent`: settings, wiring, run, drain.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::{AgentConfig, OnShutdown};
use qosm_agent::journal::Journal;
use qosm_agent::service::Request;
use qosm_agent::{Agent, Metrics, Mode, Parts, Unloaded, admin, load, service};
use qosm_cluster::Folder;
use qosm_engine::Engine;
use qosm_model::problem::chain;

use crate::args::{AgentArgs, LogFormat, MetricsListen, OnShutdownArg};
use crate::{Answer, document, host, modules};

pub(crate) fn run(args: AgentArgs) -> anyhow::Result<Answer> {
    log(args.log_format);
    let mut config: AgentConfig = args.agent_config.as_deref().map(document::read).transpose()?.unwrap_or_default();
    match args.on_shutdown {
        Some(OnShutdownArg::Keep) => config.on_shutdown = OnShutdown::Keep,
        Some(OnShutdownArg::Restore) => config.on_shutdown = OnShutdown::Restore,
        None => {}
    }
    let entries = modules::entries_with_shadows(&args.modules, &args.shadows, std::mem::take(&mut config.policies))?;
    let folder = Folder::open(args.pods.clone(), args.config.clone())
        .with_context(|| format!("cannot watch the folder of pods {}", args.pods.display()))?;

    let cache = modules::cache(&args.state_dir.join("modules"))?;
    let state = Dir::open_ambient_dir(&args.state_dir, ambient_authority())
        .with_context(|| format!("cannot open the state folder {}", args.state_dir.display()))?;
    let boot = std::fs::read_to_string(args.host.proc.join("sys/kernel/random/boot_id"))
        .context("cannot tell this boot from earlier ones")?;
    let journal = Journal::open(&state, &args.state_dir, boot.trim())?;
    raise_file_limit();
    let host = host::open(&args.host)?;

    let engine = Engine::new()?;
    let compiler = modules::compiler()?;
    let default_modules = modules::default_dir(args.modules.module_dir.as_deref());
    let mut policies = Vec::new();
    let mut unloaded = Vec::new();
    for entry in &entries {
        match load::load(&engine, entry, &default_modules, Some(&cache), &compiler) {
            Ok(policy) => policies.push(policy),
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::error!(policy = entry.name, error, "policy not loaded; the others go on");
                unloaded.push(Unloaded { policy: entry.name.clone(), mode: entry.mode, error });
            }
        }
    }
    let loaded = policies.iter().map(|policy| *policy.module.digest()).collect();
    if let Err(error) = cache.prune(&engine, &loaded) {
        tracing::warn!(error = chain(&error), "compiled modules that nobody uses stay in the cache");
    }
    let metrics = Arc::new(Metrics::default());
    let mut agent = Agent::new(Parts {
        host,
        engine,
        policies,
        unloaded,
        config,
        mode: Mode::Enforce,
        make_cgroups: args.create_cgroups,
        journal: Some(journal),
        metrics: Arc::clone(&metrics),
    })?;

    let (requests, received) = mpsc::channel();
    let woken = requests.clone();
    if let Err(error) = agent.start_alarms(move || drop(woken.send(Request::Woken))) {
        tracing::warn!(error = chain(&error), "policies are evaluated by their intervals only");
    }
    open_doors(&args, metrics, &requests)?;
    if !rustix::process::geteuid().is_root() {
        tracing::warn!("not root: cgroups can mostly not be written; `qosm doctor` says what works here");
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), policies = entries.len(), "agent runs");
    let ended = service::run(agent, folder, Duration::from_millis(args.tick_millis), &received);
    // Whoever else listens on the socket's path by now is not ours to remove; an agent that ends in order is alone with it.
    std::fs::remove_file(&args.admin_socket).ok();
    ended?;
    Ok(Answer::Good)
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

fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("QOSM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
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

/// Opens the sockets and listens for signals, on a thread of its own: tokio stays out of the loop.
fn open_doors(args: &AgentArgs, metrics: Arc<Metrics>, requests: &mpsc::Sender<Request>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).enable_all().build()?;
    let guard = runtime.enter();
    let socket = admin::bind_admin(&args.admin_socket)
        .with_context(|| format!("cannot listen on the admin socket {}", args.admin_socket.display()))?;
    runtime.spawn(admin::serve_admin(socket, requests.clone()));
    if let MetricsListen::At(address) = args.metrics_listen {
        let listener = std::net::TcpListener::bind(address)
            .and_then(|listener| {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener)
            })
            .with_context(|| {
                format!("cannot listen on {address} for metrics; choose another with --metrics-listen, or `none`")
            })?;
        runtime.spawn(admin::serve_metrics(listener, metrics, requests.clone()));
    }
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let requests = requests.clone();
    runtime.spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // The loop may have ended by itself.
        requests.send(Request::ShutDown { restore: false, reply: None }).ok();
    });
    drop(guard);
    std::thread::Builder::new()
        .name("doors".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("cannot start the thread that serves the sockets")?;
    Ok(())
}
