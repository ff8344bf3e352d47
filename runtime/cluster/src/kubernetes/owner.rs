//! The DaemonSet that an agent belongs to, which tells whether another agent follows on this node.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, ResourceExt as _};

use super::{connect, explain};

/// Timeout of the question: an agent that ends has little time.
const PATIENCE: Duration = Duration::from_secs(8);
/// Number of refusals (401, 403) after which the next answer counts, whatever it is.
const MAX_REFUSALS: u32 = 3;

/// A DaemonSet, and the node that one of its agents runs on.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The kubeconfig; see [`super::Connection`].
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node.
    pub node: String,
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
}

impl Owner {
    /// Whether no agent follows on this node: the DaemonSet or its namespace is deleted or being deleted, or it no longer selects
    /// the node. (When a namespace is deleted, pods may end before their DaemonSet.)
    ///
    /// A refused request (401, 403) means that the service account or role was deleted, which is how an uninstall looks from
    /// inside. If the API server does not answer, the function returns `false`, and held knobs stay for the next agent.
    pub async fn is_gone(&self) -> bool {
        match tokio::time::timeout(PATIENCE, self.ask_again()).await {
            Ok(Ok(gone)) => gone,
            Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 401 | 403 | 404) => {
                tracing::info!(owner = self.name, answer = answer.code, "no agent follows on this node");
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    owner = self.name,
                    error = explain(&error),
                    "unknown whether an agent follows: values stay"
                );
                false
            }
            Err(_) => {
                tracing::warn!(owner = self.name, "the API server does not answer in time: values stay");
                false
            }
        }
    }

    /// Asks again after a refusal, once a second: an API server that has just started refuses all requests for a moment.
    async fn ask_again(&self) -> Result<bool, kube::Error> {
        for _ in 0..MAX_REFUSALS {
            match self.ask().await {
                Err(kube::Error::Api(answer)) if matches!(answer.code, 401 | 403) => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                answer => return answer,
            }
        }
        self.ask().await
    }

    async fn ask(&self) -> Result<bool, kube::Error> {
        let client = match connect(self.kubeconfig.as_deref()).await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(%error, "unknown whether an agent follows: values stay");
                return Ok(false);
            }
        };
        let namespace = Api::<Namespace>::all(client.clone()).get(&self.namespace).await?;
        let owner = Api::<DaemonSet>::namespaced(client.clone(), &self.namespace).get(&self.name).await?;
        if [&namespace.metadata, &owner.metadata].iter().any(|object| object.deletion_timestamp.is_some()) {
            return Ok(true);
        }
        let wanted = owner.spec.template.spec.and_then(|spec| spec.node_selector).unwrap_or_default();
        if wanted.is_empty() {
            return Ok(false);
        }
        let node = Api::<Node>::all(client).get_metadata(&self.node).await?;
        Ok(wanted.iter().any(|(label, value)| node.labels().get(label) != Some(value)))
    }
}
