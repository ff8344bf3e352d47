//! The fleet seen through the API server, for commands that a user runs with a kubeconfig.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectList};
use kube::core::PartialObjectMeta;
use kube::{Client, CustomResourceExt as _, ResourceExt as _};
use qosm_model::pod::Node;
use serde_json::Value;

use crate::controller::aggregate::{self, ReportCounts};
use crate::kubernetes::{KubernetesError, answered, connect, explain};
use crate::node_report::NodePolicyReport;
use crate::policy_module::{PolicyModule, PolicyModuleStatus};

/// Objects per page of a list.
const PAGE: u32 = 500;

/// A client for the cluster's PolicyModules, nodes and reports.
pub struct Fleet {
    client: Client,
}

/// A request to the cluster failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The API server cannot be reached.
    #[error(transparent)]
    Connection(#[from] KubernetesError),
    /// The PolicyModule does not exist.
    #[error("there is no PolicyModule `{name}`; there are: {known}")]
    Unknown {
        /// The PolicyModule.
        name: String,
        /// The existing PolicyModules.
        known: String,
    },
    /// The API server refuses the list.
    #[error("{what} cannot be listed: {why}")]
    List {
        /// The kind of the objects.
        what: &'static str,
        /// The API server's error.
        why: String,
    },
}

impl Fleet {
    /// A client for the cluster.
    ///
    /// # Errors
    ///
    /// [`FleetError::Connection`].
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, FleetError> {
        Ok(Self { client: connect(kubeconfig).await? })
    }

    /// Counts one PolicyModule from the nodes' current reports, whether or not a controller runs.
    ///
    /// # Errors
    ///
    /// [`FleetError::Unknown`], [`FleetError::List`].
    #[expect(clippy::disallowed_methods, reason = "one count for one command")]
    pub async fn count(&self, name: &str) -> Result<(PolicyModule, PolicyModuleStatus), FleetError> {
        let modules: Api<PolicyModule> = Api::all(self.client.clone());
        let mut modules = every("PolicyModules", async |page| modules.list(&page).await).await?;
        let Some(place) = modules.iter().position(|module| module.name_any() == name) else {
            let known = modules.iter().map(|module| module.name_any()).collect::<Vec<_>>().join(", ");
            return Err(FleetError::Unknown { name: name.to_owned(), known });
        };
        let module = modules.swap_remove(place);
        // Only metadata: a whole Node is large, and there are many.
        let nodes: Api<PartialObjectMeta<v1::Node>> = Api::all(self.client.clone());
        let nodes: BTreeMap<String, Node> = every("nodes", async |page| nodes.list(&page).await)
            .await?
            .into_iter()
            .map(|node| {
                let labels = node.labels().clone();
                (node.name_any(), Node { name: node.name_any(), labels, ..Node::default() })
            })
            .collect();
        let reports: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<NodePolicyReport>(&()));
        let reports: BTreeMap<String, ReportCounts> =
            every("NodePolicyReports", async |page| reports.list(&page).await)
                .await?
                .into_iter()
                .map(|report| (report.name_any(), ReportCounts::read(report)))
                .collect();
        let status = aggregate::count(&module, &nodes, &reports, module.status.as_ref(), &Time(Timestamp::now()));
        Ok((module, status))
    }
}

async fn every<K: Clone>(
    what: &'static str,
    list: impl AsyncFn(ListParams) -> Result<ObjectList<K>, kube::Error>,
) -> Result<Vec<K>, FleetError> {
    let mut all = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page =
            answered(list(params.clone())).await.map_err(|error| FleetError::List { what, why: explain(&error) })?;
        let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
        all.extend(page.items);
        match next {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(all),
        }
    }
}

/// The CustomResourceDefinitions, or the one with this plural name, as a stream of YAML documents.
///
/// # Errors
///
/// They cannot be written as YAML.
pub fn crds(name: Option<&str>) -> Result<String, serde_saphyr::ser_error::Error> {
    let mut text = String::new();
    for crd in [PolicyModule::crd(), NodePolicyReport::crd()] {
        if name.is_none_or(|name| crd.spec.names.plural == name) {
            let mut crd = serde_json::to_value(&crd).unwrap_or_default();
            drop_foreign_formats(&mut crd);
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(&crd)?);
        }
    }
    Ok(text)
}

/// Kubernetes has no unsigned integers, and `kubectl apply` warns of a schema with them. Their bounds stay.
fn drop_foreign_formats(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(drop_foreign_formats),
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(drop_foreign_formats);
        }
        _ => {}
    }
}
