//! The requests to the API server behind a [`Job`].

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::super::CONTROLLER;
use super::object::{LABEL, change, is_own, object};
use super::{Done, Job, Written};
use crate::kubernetes::{answered, explain};
use crate::topology::GROUP;

/// Carries out one job.
pub(in super::super) async fn carry_out(client: Client, job: Job) -> Done {
    let kind = GroupVersionKind::gvk(GROUP, "v1alpha1", "NodeResourceTopology");
    let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
    let topologies: Api<DynamicObject> = Api::all_with(client, &resource);
    match job {
        Job::List => {
            let own = ListParams::default().labels(LABEL);
            let listed = match answered(topologies.list_metadata(&own)).await {
                Ok(list) => Ok(list.items.iter().map(kube::ResourceExt::name_any).collect()),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Vec::new()),
                Err(error) => Err(explain(&error)),
            };
            Done::Listed(listed)
        }
        Job::Write { node, wanted } => {
            let written = match object(&node, &wanted) {
                Ok(made) => write(&topologies, &node, &made).await.map_err(|error| explain(&error)),
                Err(error) => Err(error),
            };
            Done::Written(node, wanted, written)
        }
        Job::Remove { node } => {
            let removed = remove(&topologies, &node).await.map_err(|error| explain(&error));
            Done::Removed(node, removed)
        }
    }
}

async fn write(topologies: &Api<DynamicObject>, node: &str, made: &Value) -> Result<Written, kube::Error> {
    let there = match answered(topologies.get(node)).await {
        Ok(there) => there,
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            let params = PostParams { field_manager: Some(CONTROLLER.into()), ..PostParams::default() };
            let made = serde_json::from_value(made.clone()).map_err(kube::Error::SerdeError)?;
            return match answered(topologies.create(&params, &made)).await {
                Ok(_) => Ok(Written::Made),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Written::NoSuchKind),
                Err(error) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    if !is_own(&there) {
        return Ok(Written::AnOthers);
    }
    if let Some(patch) = change(&there, made) {
        let params = PatchParams { field_manager: Some(CONTROLLER.into()), ..PatchParams::default() };
        answered(topologies.patch(node, &params, &Patch::Merge(patch))).await?;
    }
    Ok(Written::AsWanted)
}

async fn remove(topologies: &Api<DynamicObject>, node: &str) -> Result<(), kube::Error> {
    let gone = |error| match error {
        kube::Error::Api(answer) if answer.code == 404 => Ok(()),
        other => Err(other),
    };
    let there = match answered(topologies.get(node)).await {
        Ok(there) => there,
        Err(error) => return gone(error),
    };
    if !is_own(&there) {
        return Ok(());
    }
    // So that an object that another program created in its place meanwhile stays.
    let preconditions = Preconditions { uid: there.uid(), resource_version: there.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    answered(topologies.delete(node, &params)).await.map(drop).or_else(gone)
}
