//! The watches: one a kind, each narrowed to what concerns this node.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};

use super::mirror::{Mirror, Watch};
use crate::policy_module::PolicyModule;

/// Longer than the longest pause between two errors, and than a request that nobody answers.
const QUIET: Duration = Duration::from_secs(360);

/// Watches for ever. A watch that breaks is begun again, with growing pauses, from where it was; where the API server has forgotten
/// that place, with a list.
pub(super) async fn run(client: Client, node: &str, config_maps: &[(String, String)], mirror: &Mirror) {
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
            // A watch that goes on where it was says nothing of it.
            match tokio::time::timeout(QUIET, events.next()).await {
                Ok(Some(event)) => mirror.take(&watch, event),
                Ok(None) => return,
                Err(_) => mirror.quiet(&watch),
            }
        }
    }))
    .await;
}

/// Objects are taken as they come, untyped: one that does not fit its type must not break the list that it stands in.
fn all<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}
