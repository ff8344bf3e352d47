//! The fleet as a whole: how many nodes run which version of a module, and what they complain about.
//!
//! Ten thousand agents must not write one object, so none of them writes a PolicyModule: each writes its own report, and one
//! controller counts. It holds no more of a report than what it counts, writes a status only where it has changed, and tells each
//! complaint once where the object's author looks, however many nodes have it. Without it policies run as well; only the counts
//! are missing. Two of them at once do no harm: they write the same.

pub mod census;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource as _, ResourceExt as _};
use qosm_model::pod::Node;
use tokio::time::Instant;

use self::census::{Census, Counted};
use crate::kubernetes::events::publish;
use crate::kubernetes::{answered, explain};
use crate::node_report::NodePolicyReport;
use crate::object::{API_SERVER, API_VERSION};
use crate::policy_module::{PolicyModule, policy_module_from_value};

/// Who says it.
const CONTROLLER: &str = "qosm-controller";
/// A change is counted after so long, together with what follows it, and at most so often.
const GATHERED: Duration = Duration::from_secs(2);
/// Each status goes out to every node, so that they are written less often the more nodes there are: a second more for so many.
const NODES_PER_SECOND: u32 = 500;

/// Nodes fall silent without an event.
const RECOUNTED_EVERY: Duration = Duration::from_secs(300);

/// Counts the fleet.
pub struct Controller {
    client: Client,
    recorder: Recorder,
    census: Census,
    synced: BTreeSet<Kind>,
    told: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Nodes,
    Reports,
    Modules,
}

/// What a watch brings.
enum Change {
    Node(watcher::Event<PartialObjectMeta<v1::Node>>),
    Report(watcher::Event<DynamicObject>),
    Module(watcher::Event<DynamicObject>),
    Trouble(String, watcher::Error),
}

impl Controller {
    /// A controller that has seen nothing yet.
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter { controller: CONTROLLER.into(), instance });
        Self { client, recorder, census: Census::default(), synced: BTreeSet::new(), told: BTreeMap::new() }
    }

    /// Watches and counts for ever. `ready` is called once everything was seen.
    pub async fn run(mut self, ready: impl Fn()) {
        let mut changes = pin!(changes(&self.client));
        let mut round = tokio::time::interval(GATHERED);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut recount = tokio::time::interval(RECOUNTED_EVERY);
        recount.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_stale = false;
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => {
                        is_stale |= self.take(change);
                        if self.synced.len() == 3 { ready(); }
                    }
                    None => return,
                },
                _ = recount.tick() => is_stale = true,
                _ = round.tick(), if is_stale && self.synced.len() == 3 => {
                    is_stale = !self.write().await;
                    round = tokio::time::interval_at(Instant::now() + self.gathered(), GATHERED);
                    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                }
            }
        }
    }

    /// How long changes are gathered before they are counted.
    fn gathered(&self) -> Duration {
        let nodes = u32::try_from(self.census.nodes.objects.len()).unwrap_or(u32::MAX);
        GATHERED + Duration::from_secs(u64::from(nodes / NODES_PER_SECOND))
    }

    /// `true` if it may change a count.
    fn take(&mut self, change: Change) -> bool {
        let census = &mut self.census;
        let (kind, is_synced) = match change {
            Change::Node(event) => {
                let read = |node: PartialObjectMeta<v1::Node>| {
                    let labels = node.labels().clone();
                    Some((node.name_any(), Node { name: node.name_any(), labels, memory_allocatable: None }))
                };
                (Kind::Nodes, census.nodes.take(event, read))
            }
            Change::Report(event) => {
                let read = |report: DynamicObject| Some((report.name_any(), Counted::read(report)));
                (Kind::Reports, census.reports.take(event, read))
            }
            Change::Module(event) => {
                let read = |module: DynamicObject| {
                    let value = serde_json::to_value(module).ok()?;
                    let module = policy_module_from_value(value, API_SERVER).ok()?.object;
                    Some((module.name_any(), module))
                };
                (Kind::Modules, census.modules.take(event, read))
            }
            Change::Trouble(what, error) => {
                tracing::warn!(what, error = %error, "watch broken; begun again");
                return false;
            }
        };
        if is_synced {
            self.synced.insert(kind);
        }
        true
    }

    /// Writes what has changed. `false` if something could not be written and has to be tried again.
    async fn write(&mut self) -> bool {
        let now = Time(Timestamp::now());
        let mut is_complete = true;
        let modules: Api<PolicyModule> = Api::all(self.client.clone());
        for (name, status) in self.census.changed(&now) {
            let patch = serde_json::json!({
                "apiVersion": API_VERSION, "kind": "PolicyModule", "metadata": {"name": name}, "status": status,
            });
            let params = PatchParams::apply(CONTROLLER).force();
            match answered(modules.patch_status(&name, &params, &Patch::Apply(patch))).await {
                Ok(_) => self.census.written(&name, status),
                // It went meanwhile, which is told by the watch as well.
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                Err(error) => {
                    tracing::warn!(module = name, error = explain(&error), "status not written; tried again");
                    is_complete = false;
                }
            }
        }
        self.tell().await && is_complete
    }

    /// Tells each complaint once, on the object that it is about. `false` if one has to be told again.
    async fn tell(&mut self) -> bool {
        let mut is_complete = true;
        let complaints = self.census.complaints(&Time(Timestamp::now()));
        self.told.retain(|about, _| complaints.contains_key(about));
        for (about, message) in complaints {
            if self.told.get(&about) == Some(&message) {
                continue;
            }
            let Some(regarding) = self.object(&about).await else { continue };
            match publish(&self.recorder, &regarding, true, "InvalidConfiguration", &message, "controller").await {
                Ok(()) => drop(self.told.insert(about, message)),
                Err(error) => {
                    tracing::warn!(about, error = explain(&error), "event not published; tried again");
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    /// The object of a complaint: `kubectl describe` looks for events by its UID.
    async fn object(&self, about: &str) -> Option<v1::ObjectReference> {
        let (kind, name) = about.split_once(' ')?;
        let found: ObjectMeta;
        let (api_version, namespace) = match kind {
            "ConfigMap" => {
                let (namespace, name) = name.split_once('/')?;
                let maps: Api<v1::ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                found = answered(maps.get_metadata(name)).await.ok()?.metadata;
                ("v1", Some(namespace.to_owned()))
            }
            "PolicyModule" => {
                found = self.census.modules.objects.get(name)?.metadata.clone();
                (API_VERSION, None)
            }
            _ => return None,
        };
        Some(v1::ObjectReference {
            api_version: Some(api_version.into()),
            kind: Some(kind.into()),
            namespace,
            name: found.name,
            uid: found.uid,
            ..v1::ObjectReference::default()
        })
    }
}

fn changes(client: &Client) -> impl Stream<Item = Change> + use<> {
    let config = watcher::Config::default;
    let nodes: Api<PartialObjectMeta<v1::Node>> = Api::all(client.clone());
    let dynamic = |resource: ApiResource| -> Api<DynamicObject> { Api::all_with(client.clone(), &resource) };
    let reports = dynamic(ApiResource::erase::<NodePolicyReport>(&()));
    let modules = dynamic(ApiResource::erase::<PolicyModule>(&()));
    let trouble = |what: &str| {
        let what = what.to_owned();
        move |error| Change::Trouble(what.clone(), error)
    };
    let nodes_failed = trouble(&v1::Node::plural(&()));
    let reports_failed = trouble(&NodePolicyReport::plural(&()));
    let modules_failed = trouble(&PolicyModule::plural(&()));
    stream::select_all([
        watcher(nodes, config())
            .default_backoff()
            .map(move |event| event.map_or_else(&nodes_failed, Change::Node))
            .boxed(),
        watcher(reports, config())
            .default_backoff()
            .map(move |event| event.map_or_else(&reports_failed, Change::Report))
            .boxed(),
        watcher(modules, config())
            .default_backoff()
            .map(move |event| event.map_or_else(&modules_failed, Change::Module))
            .boxed(),
    ])
}
