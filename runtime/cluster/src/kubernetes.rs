//! A [`Source`] that watches an API server for this node's objects, and the agent's writes to it.
//!
//! A separate thread keeps one watch for each kind of object and reduces every object on arrival to the fields that the agent
//! uses ([`cache`]), so memory grows with this node's pods and not with the cluster. The loop calls [`Kubernetes::poll`], which
//! never waits. While the API server is unreachable, the last known state counts.
//!
//! In the other direction go events for pods' owners ([`events`]) and this node's report ([`reports`]): the loop hands them to
//! the [`Outbox`] and never waits for the API server to accept them.

mod api_errors;
mod cache;
pub(crate) mod events;
mod files;
mod outbox;
mod owner;
mod reports;
mod watches;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use qosm_model::layering::config_maps;

pub use self::api_errors::explain;
use self::cache::Cache;
pub use self::files::ConnectionFiles;
use self::outbox::Inbox;
pub use self::outbox::{Outbox, PodEvent};
pub use self::owner::Owner;
use crate::{Snapshot, Source};

/// The API server's address and credentials, and the agent's node.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The kubeconfig; `None` = `$KUBECONFIG` or `~/.kube/config`, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node that the agent runs on.
    pub node: String,
}

/// A client for the API server cannot be made. An API server that does not answer causes no such error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubernetesError {
    /// No configuration, or one that cannot be used.
    #[error("{}: it does not name an API server; give --kubeconfig a file that does", path.as_deref().unwrap_or("no kubeconfig and no service account"))]
    Config {
        /// The kubeconfig that was given; `None` if there was none.
        path: Option<String>,
        /// Why it cannot be used.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration exists, but no client can be made from it.
    #[error("no connection to the API server can be set up")]
    Client(#[source] kube::Error),
    /// The async runtime or its thread cannot be started.
    #[error("the thread that talks to the API server cannot be started")]
    Thread(#[source] std::io::Error),
}

/// A client for the API server.
///
/// # Errors
///
/// [`KubernetesError::Config`] and [`KubernetesError::Client`].
pub async fn connect(kubeconfig: Option<&std::path::Path>) -> Result<Client, KubernetesError> {
    Client::try_from(config(kubeconfig).await?).map_err(KubernetesError::Client)
}

/// A client that does not retry 429 and 503: the caller does. The default client waits as long as the response says, and a
/// PodDisruptionBudget that forbids an eviction answers 429.
///
/// # Errors
///
/// As [`connect`].
pub async fn connect_without_retries(kubeconfig: Option<&std::path::Path>) -> Result<Client, KubernetesError> {
    let mut config = config(kubeconfig).await?;
    config.default_retry = false;
    Client::try_from(config).map_err(KubernetesError::Client)
}

async fn config(kubeconfig: Option<&std::path::Path>) -> Result<Config, KubernetesError> {
    let refused = |source| KubernetesError::Config {
        path: kubeconfig.map(|path| format!("kubeconfig {}", path.display())),
        source,
    };
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| refused(Box::new(error)))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options).await.map_err(|error| refused(Box::new(error)))?
        }
        None => Config::infer().await.map_err(|error| refused(Box::new(error)))?,
    };
    config.read_timeout = Some(SILENCE);
    Ok(config)
}

/// Timeout of a connection without any data. The API server ends each watch earlier than that.
const SILENCE: Duration = Duration::from_secs(330);
/// Timeout of a single request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Waits for a response for at most [`ANSWERED_WITHIN`].
///
/// # Errors
///
/// Those of the request; a timeout is a connection error.
pub(crate) async fn answered<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = |_| {
        let message = format!("no answer within {} s", ANSWERED_WITHIN.as_secs());
        kube::Error::Service(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
    };
    tokio::time::timeout(ANSWERED_WITHIN, request).await.map_err(late)?
}

/// The API server's objects that concern one node.
#[derive(Debug)]
pub struct Kubernetes {
    cache: Arc<Cache>,
    outbox: Outbox,
}

impl Kubernetes {
    /// Starts the watches on a separate thread, which calls `wake` whenever an object has changed.
    ///
    /// # Errors
    ///
    /// [`KubernetesError`]. An API server that does not answer is no error: the watches retry.
    #[expect(clippy::disallowed_methods, reason = "what speaks to the API server has a thread of its own")]
    pub fn start(connection: Connection, wake: impl Fn() + Send + Sync + 'static) -> Result<Self, KubernetesError> {
        let maps: Vec<(String, String)> =
            config_maps().map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(KubernetesError::Thread)?;
        let client = runtime.block_on(connect(connection.kubeconfig.as_deref()))?;
        let cache = Arc::new(Cache::new(&maps, Box::new(wake)));
        let (outbox, inbox) = outbox::new();
        let (node, seen) = (connection.node, Arc::clone(&cache));
        std::thread::Builder::new()
            .name("kubernetes".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let Inbox { events, report, final_report } = inbox;
                    tokio::select! {
                        _ = async { tokio::join!(
                            watches::run(client.clone(), &node, &maps, &seen),
                            watches::run_topology(client.clone(), &node, &seen),
                            events::run(client.clone(), &node, &seen, events),
                            reports::run(client.clone(), &node, &seen, report),
                        ) } => {}
                        () = reports::close(client.clone(), &node, final_report) => {}
                    }
                });
            })
            .map_err(KubernetesError::Thread)?;
        Ok(Self { cache, outbox })
    }

    /// The queue for events and this node's report.
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }
}

impl Source for Kubernetes {
    fn poll(&mut self) -> Option<Snapshot> {
        self.cache.changed()
    }

    fn has_changes(&self) -> bool {
        self.cache.has_changes()
    }

    fn waits_for(&self) -> Option<String> {
        self.cache.waits_for()
    }
}
