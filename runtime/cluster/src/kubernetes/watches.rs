//! The watches: one for each kind, restricted to objects that concern this node.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};

use super::cache::{Cache, Watch};
use super::{answered, explain};
use crate::policy_module::PolicyModule;
use crate::topology;

/// Silence after which a watch counts as recovered: longer than the longest pause between two errors, and than a request's timeout.
const QUIET: Duration = Duration::from_secs(360);

/// Interval at which a cluster without NodeResourceTopologies is checked for the kind.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(3600);
/// The same interval after an error.
const DISCOVERY_RETRY: Duration = Duration::from_secs(60);

/// Watches the node's NodeResourceTopology, if the cluster has that kind.
pub(super) async fn run_topology(client: Client, node: &str, cache: &Cache) {
    loop {
        match discover(&client).await {
            Ok(Some(resource)) => {
                let api = Api::all_with(client.clone(), &resource);
                let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
                let mut events = watcher(api, config).default_backoff().boxed();
                loop {
                    match tokio::time::timeout(QUIET, events.next()).await {
                        Ok(Some(event)) if event.as_ref().is_err_and(is_gone) => break,
                        Ok(Some(event)) => cache.take(&Watch::Topology, event),
                        Ok(None) => break,
                        // A watch that was resumed gives no event.
                        Err(_) => cache.recovered_silently(&Watch::Topology),
                    }
                }
                // The kind is gone, and the object with it.
                cache.take(&Watch::Topology, Ok(watcher::Event::Init));
                cache.take(&Watch::Topology, Ok(watcher::Event::InitDone));
                tokio::time::sleep(DISCOVERY_RETRY).await;
            }
            Ok(None) => tokio::time::sleep(DISCOVERY_INTERVAL).await,
            Err(error) => {
                tracing::debug!(error = explain(&error), "not known whether the cluster has NodeResourceTopologies");
                tokio::time::sleep(DISCOVERY_RETRY).await;
            }
        }
    }
}

/// The kind as the API server serves it; `None` if it does not.
async fn discover(client: &Client) -> Result<Option<ApiResource>, kube::Error> {
    const KIND: &str = "NodeResourceTopology";
    for version in topology::VERSIONS {
        let api_version = format!("{}/{version}", topology::GROUP);
        match answered(client.list_api_group_resources(&api_version)).await {
            Ok(list) => {
                if let Some(served) = list.resources.into_iter().find(|served| served.kind == KIND) {
                    return Ok(Some(ApiResource {
                        group: topology::GROUP.to_owned(),
                        version: version.to_owned(),
                        api_version,
                        kind: KIND.to_owned(),
                        plural: served.name,
                    }));
                }
            }
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether the API server no longer serves the kind.
fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(answer))
        | watcher::Error::WatchStartFailed(kube::Error::Api(answer))
        | watcher::Error::WatchFailed(kube::Error::Api(answer)) => answer.code == 404,
        watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

/// Watches forever. A broken watch starts again, with growing pauses, from its resource version, or with a list
/// if that version has expired.
pub(super) async fn run(client: Client, node: &str, config_maps: &[(String, String)], cache: &Cache) {
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut watches = vec![
        (Watch::Pods, all::<v1::Pod>(&client), watcher::Config::default().fields(&format!("spec.nodeName={node}"))),
        (Watch::Node, all::<v1::Node>(&client), named(node)),
        (Watch::PolicyModules, all::<PolicyModule>(&client), watcher::Config::default()),
    ];
    for (place, (namespace, name)) in config_maps.iter().enumerate() {
        let api = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<v1::ConfigMap>(&()));
        watches.push((Watch::ConfigMap(place), api, named(name)));
    }
    join_all(watches.into_iter().map(|(watch, api, config)| async move {
        let mut events = watcher(api, config).default_backoff().boxed();
        loop {
            // A watch that resumes from its resource version gives no event.
            match tokio::time::timeout(QUIET, events.next()).await {
                Ok(Some(event)) => cache.take(&watch, event),
                Ok(None) => return,
                Err(_) => cache.recovered_silently(&watch),
            }
        }
    }))
    .await;
}

/// An untyped API: one object that does not fit its type must not break the list.
fn all<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}
