//! The fleet controller: counts how many nodes run which version of a module, and collects the problems that they report.
//!
//! Ten thousand agents must not write one object, so no agent writes a PolicyModule: each writes its own report, and one
//! controller counts them. The controller keeps only the counted part of a report, writes a status only when it has changed, and
//! publishes each problem once on the object that it is about, however many nodes report it. Policies run without a controller;
//! only the counts are missing.
//!
//! Where the operator enables colocation, the controller also does what agents have no right to do: it publishes extended
//! resources on Nodes and evicts pods at the reports' request ([`colocation`]), and it writes NodeResourceTopologies for
//! schedulers that choose CPUs. Of several controllers, only the holder of a Lease acts ([`lease`]).

pub mod aggregate;
pub mod colocation;
pub mod lease;
mod node_view;
mod topology;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource as _, ResourceExt as _};
use qosm_model::pod::Node;
use tokio::sync::watch;
use tokio::time::Instant;

use self::aggregate::{Aggregate, ReportCounts};
use self::colocation::{Colocation, ColocationRules, Now};
use self::lease::{Leadership, LeaseName};
use self::node_view::NodeView;
use self::topology::Topologies;
use crate::kubernetes::events::publish;
use crate::kubernetes::{answered, explain};
use crate::node_report::NodePolicyReport;
use crate::object::{API_SERVER, API_VERSION};
use crate::pod::is_name;
use crate::policy_module::{PolicyModule, policy_module_from_value};

/// Source of the controller's events.
const CONTROLLER: &str = "qosm-controller";
/// Delay between a change and its count, and interval between two counts.
const COUNT_DELAY: Duration = Duration::from_secs(2);
/// Each status goes out to every node, so larger fleets write less often: this many nodes add a second to the interval.
const NODES_PER_SECOND: u32 = 500;

/// Interval between two counts without a change: no event tells that a node has fallen silent.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(300);

/// Interval at which the controller checks for stale reports and for jobs to retry.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of concurrent requests for nodes' resources, evictions, answers and NodeResourceTopologies.
const MAX_REQUESTS: usize = 16;
/// Maximum number of these requests that are for NodeResourceTopologies.
const MAX_TOPOLOGIES: usize = 4;

/// What a controller does beyond counting.
#[derive(Clone, Debug, Default)]
pub struct ControllerOptions {
    /// Instance name in events: the name of the controller's pod.
    pub instance: Option<String>,
    /// The Lease that decides whether this controller acts; `None` if there is no other controller.
    pub lease: Option<LeaseName>,
    /// Rules for publications and evictions; `None` disables both.
    pub colocation: Option<ColocationRules>,
    /// Whether NodeResourceTopologies are published or withdrawn; `None` leaves them alone.
    pub node_topology: Option<NodeTopology>,
}

/// What the controller does with NodeResourceTopologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeTopology {
    /// Writes them from the CPUs that agents report.
    Publish,
    /// Removes those that the controller wrote.
    Withdraw,
}

/// Counts the fleet, and does what the reports ask for.
pub struct Controller {
    client: Client,
    recorder: Recorder,
    aggregate: Aggregate,
    synced: BTreeSet<Kind>,
    published: BTreeMap<String, String>,
    lease: Option<LeaseName>,
    colocation: Option<(Colocation, ColocationRules)>,
    topologies: Option<Topologies>,
    begun: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Nodes,
    Reports,
    Modules,
}

/// A request to the API server on behalf of reports.
enum Job {
    Colocation(colocation::Job),
    Topology(topology::Job),
}

/// The outcome of a [`Job`].
enum Done {
    Colocation(colocation::Done),
    Topology(topology::Done),
}

/// An event or error of a watch.
enum Change {
    Node(watcher::Event<NodeView>),
    Report(watcher::Event<DynamicObject>),
    Module(watcher::Event<DynamicObject>),
    Failed(String, watcher::Error),
}

impl Controller {
    /// A controller that has not received any object yet.
    pub fn new(client: Client, options: ControllerOptions) -> Self {
        let reporter = Reporter { controller: CONTROLLER.into(), instance: options.instance };
        let recorder = Recorder::new(client.clone(), reporter);
        Self {
            client,
            recorder,
            aggregate: Aggregate::default(),
            synced: BTreeSet::new(),
            published: BTreeMap::new(),
            lease: options.lease,
            colocation: options.colocation.map(|rules| (Colocation::new(rules.clone()), rules)),
            topologies: options.node_topology.map(Topologies::new),
            begun: Instant::now(),
        }
    }

    /// Watches and acts until `ended` completes. Calls `ready` once all three watches have delivered their first list, and at
    /// each change after that.
    pub async fn run(self, ready: impl Fn(), ended: impl Future<Output = ()>) {
        let (client, lease) = (self.client.clone(), self.lease.clone());
        let (tell, leadership) =
            watch::channel(lease.as_ref().map_or_else(Leadership::of_one, |_| Leadership::default()));
        let holds = async {
            match lease.clone() {
                Some(lease) => lease::hold(client.clone(), lease, tell).await,
                None => {
                    let _only = tell;
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            () = self.act(ready, leadership) => {}
            () = holds => {}
            () = ended => {}
        }
        if let Some(lease) = &lease {
            lease::release(client.clone(), lease).await;
        }
    }

    async fn act(mut self, ready: impl Fn(), leadership: watch::Receiver<Leadership>) {
        let mut changes = pin!(changes(&self.client, self.colocation.is_some()));
        let mut requests: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut waiting, mut may_wait) = (VecDeque::new(), VecDeque::new());
        let (mut acted, mut under_way) = (false, 0);
        let mut round = tokio::time::interval(COUNT_DELAY);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut recount = tokio::time::interval(RECOUNT_INTERVAL);
        recount.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_stale = false;
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => {
                        is_stale |= self.take(change, leadership.borrow().server_ahead);
                        if self.synced.len() == 3 { ready(); }
                    }
                    None => return,
                },
                Some(done) = requests.next(), if !requests.is_empty() => {
                    let now = self.now(leadership.borrow().server_ahead);
                    match done {
                        Done::Colocation(done) => {
                            if let Some((colocation, _)) = &mut self.colocation {
                                colocation.done(done, now);
                            }
                        }
                        Done::Topology(done) => {
                            under_way -= 1;
                            let made = self.topologies.as_mut().and_then(|all| all.done(done, now.running));
                            if let (Some(node), Some((colocation, _))) = (made, &mut self.colocation) {
                                colocation.topology_is_made(&node, now);
                            }
                        }
                    }
                }
                _ = look.tick(), if self.does_more_than_counting() && self.synced.len() == 3 => {}
                _ = recount.tick() => is_stale = true,
                _ = round.tick(), if is_stale && self.synced.len() == 3 && leadership.borrow().acts() => {
                    is_stale = !self.write().await;
                    round = tokio::time::interval_at(Instant::now() + self.count_delay(), COUNT_DELAY);
                    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                }
            }
            let now = self.now(leadership.borrow().server_ahead);
            // With an incomplete list, resources would be withdrawn from the nodes that it lacks.
            let acts = self.synced.len() == 3 && leadership.borrow().acts();
            if acts && !acted {
                self.topologies.iter_mut().for_each(Topologies::begin);
                self.colocation.iter_mut().for_each(|(colocation, _)| colocation.begin(now));
            }
            acted = acts;
            if acts {
                if let Some((colocation, _)) = &mut self.colocation {
                    waiting.extend(colocation.due(now));
                }
                if let Some(topologies) = &mut self.topologies {
                    may_wait.extend(topologies.due(now.running));
                }
            } else {
                waiting.drain(..).map(Job::Colocation).for_each(|job| self.abandoned(&job, now));
                may_wait.drain(..).map(Job::Topology).for_each(|job| self.abandoned(&job, now));
            }
            while requests.len() < MAX_REQUESTS {
                // Resources and evictions go before NodeResourceTopologies, for which no pod waits.
                let next = waiting
                    .pop_front()
                    .map(Job::Colocation)
                    .or_else(|| may_wait.pop_front_if(|_| under_way < MAX_TOPOLOGIES).map(Job::Topology));
                let Some(job) = next else { break };
                under_way += usize::from(matches!(job, Job::Topology(_)));
                requests.extend(self.request(job));
            }
        }
    }

    fn does_more_than_counting(&self) -> bool {
        self.colocation.is_some() || self.topologies.is_some()
    }

    fn abandoned(&mut self, job: &Job, now: Now) {
        match job {
            Job::Colocation(job) => {
                if let Some((colocation, _)) = &mut self.colocation {
                    colocation.abandoned(job, now);
                }
            }
            Job::Topology(job) => {
                if let Some(topologies) = &mut self.topologies {
                    topologies.abandoned(job, now.running);
                }
            }
        }
    }

    /// The future that carries out a job; `None` if colocation is disabled.
    fn request(&self, job: Job) -> Option<BoxFuture<'static, Done>> {
        let client = self.client.clone();
        match job {
            Job::Colocation(job) => {
                let evictions = self.colocation.as_ref()?.1.evictions.clone();
                let done = colocation::carry_out(client, self.recorder.clone(), evictions, job);
                Some(done.map(Done::Colocation).boxed())
            }
            Job::Topology(job) => Some(topology::carry_out(client, job).map(Done::Topology).boxed()),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the controller is a service of its own")]
    fn now(&self, server_ahead: SignedDuration) -> Now {
        let own = Timestamp::now();
        Now { running: self.begun.elapsed(), server: own.saturating_add(server_ahead).unwrap_or(own) }
    }

    /// Delay between a change and its count; it grows with the number of nodes.
    fn count_delay(&self) -> Duration {
        let nodes = u32::try_from(self.aggregate.nodes.objects.len()).unwrap_or(u32::MAX);
        COUNT_DELAY + Duration::from_secs(u64::from(nodes / NODES_PER_SECOND))
    }

    /// Applies a watch's change. Returns `true` if it may change a count.
    fn take(&mut self, change: Change, server_ahead: SignedDuration) -> bool {
        let now = self.now(server_ahead);
        if let Some((colocation, _)) = &mut self.colocation {
            match &change {
                Change::Node(event) => colocation.node(event, now),
                Change::Report(event) => colocation.report(event, now),
                Change::Module(_) | Change::Failed(..) => {}
            }
        }
        if let Some(topologies) = &mut self.topologies {
            match &change {
                Change::Node(event) => topologies.node(event, now.running),
                Change::Report(event) => topologies.report(event, now.running),
                Change::Module(_) | Change::Failed(..) => {}
            }
        }
        let aggregate = &mut self.aggregate;
        let (kind, is_synced) = match change {
            Change::Node(event) => {
                let read = |node: NodeView| {
                    let labels = node.labels().clone();
                    Some((node.name_any(), Node { name: node.name_any(), labels, ..Node::default() }))
                };
                (Kind::Nodes, aggregate.nodes.take(event, read))
            }
            Change::Report(event) => {
                let read = |report: DynamicObject| Some((report.name_any(), ReportCounts::read(report)));
                (Kind::Reports, aggregate.reports.take(event, read))
            }
            Change::Module(event) => {
                let read = |module: DynamicObject| {
                    let value = serde_json::to_value(module).ok()?;
                    let module = policy_module_from_value(value, API_SERVER).ok()?.object;
                    Some((module.name_any(), module))
                };
                (Kind::Modules, aggregate.modules.take(event, read))
            }
            Change::Failed(what, error) => {
                tracing::warn!(what, error = %error, "watch broken; begun again");
                return false;
            }
        };
        if is_synced {
            self.synced.insert(kind);
        }
        true
    }

    /// Writes the statuses that have changed. Returns `false` if a write failed and must be repeated.
    #[expect(clippy::disallowed_methods, reason = "the controller is a service of its own")]
    async fn write(&mut self) -> bool {
        let now = Time(Timestamp::now());
        let mut is_complete = true;
        let modules: Api<PolicyModule> = Api::all(self.client.clone());
        for (name, status) in self.aggregate.changed(&now) {
            let patch = serde_json::json!({
                "apiVersion": API_VERSION, "kind": "PolicyModule", "metadata": {"name": name}, "status": status,
            });
            let params = PatchParams::apply(CONTROLLER).force();
            match answered(modules.patch_status(&name, &params, &Patch::Apply(patch))).await {
                Ok(_) => self.aggregate.written(&name, status),
                // Deleted in the meantime; the watch reports that as well.
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                Err(error) => {
                    tracing::warn!(module = name, error = explain(&error), "status not written; tried again");
                    is_complete = false;
                }
            }
        }
        self.publish_problems().await && is_complete
    }

    /// Publishes each problem once, on the object that it is about. Returns `false` if a publication failed and must be repeated.
    #[expect(clippy::disallowed_methods, reason = "the controller is a service of its own")]
    async fn publish_problems(&mut self) -> bool {
        let mut is_complete = true;
        let problems = self.aggregate.problems(&Time(Timestamp::now()));
        self.published.retain(|about, _| problems.contains_key(about));
        for (about, message) in problems {
            if self.published.get(&about) == Some(&message) {
                continue;
            }
            let regarding = match self.object(&about).await {
                Ok(Some(regarding)) => regarding,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(about, error = explain(&error), "object not read");
                    is_complete &= !may_succeed_later(&error);
                    continue;
                }
            };
            match publish(&self.recorder, &regarding, true, "InvalidConfiguration", &message, "controller").await {
                Ok(()) => drop(self.published.insert(about, message)),
                Err(error) => {
                    tracing::warn!(about, error = explain(&error), "event not published; tried again");
                    is_complete = false;
                }
            }
        }
        is_complete
    }

    /// The object that a problem is about, with its UID: `kubectl describe` finds events by UID. `None` if it does not exist.
    async fn object(&self, about: &str) -> Result<Option<v1::ObjectReference>, kube::Error> {
        let Some((kind, name)) = about.split_once(' ') else { return Ok(None) };
        let (api_version, namespace, found) = match kind {
            "ConfigMap" => {
                let Some((namespace, name)) = name.split_once('/') else { return Ok(None) };
                // A report may hold any text, and these two become parts of a request's path.
                if !(is_name(namespace) && is_name(name)) {
                    return Ok(None);
                }
                let maps: Api<v1::ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                let found = answered(maps.get_metadata_opt(name)).await?;
                ("v1", Some(namespace.to_owned()), found.map(|map| map.metadata))
            }
            "PolicyModule" => {
                let found = self.aggregate.modules.objects.get(name);
                (API_VERSION, None, found.map(|module| module.metadata.clone()))
            }
            _ => return Ok(None),
        };
        Ok(found.map(|found| v1::ObjectReference {
            api_version: Some(api_version.into()),
            kind: Some(kind.into()),
            namespace,
            name: found.name,
            uid: found.uid,
            ..v1::ObjectReference::default()
        }))
    }
}

/// The watches of Nodes, reports and PolicyModules. Nodes come with their resources only if the controller publishes some: a
/// whole Node is large, and changes with each heartbeat.
fn changes(client: &Client, with_resources: bool) -> impl Stream<Item = Change> + use<> {
    let config = watcher::Config::default;
    let nodes = if with_resources {
        watcher(Api::<NodeView>::all(client.clone()), config()).default_backoff().boxed()
    } else {
        let nodes: Api<PartialObjectMeta<v1::Node>> = Api::all(client.clone());
        watcher(nodes, config()).default_backoff().map(|event| event.map(node_view::of_metadata)).boxed()
    };
    let dynamic = |resource: ApiResource| -> Api<DynamicObject> { Api::all_with(client.clone(), &resource) };
    let reports = dynamic(ApiResource::erase::<NodePolicyReport>(&()));
    let modules = dynamic(ApiResource::erase::<PolicyModule>(&()));
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| Change::Failed(what.clone(), error)
    };
    let nodes_failed = failed(&v1::Node::plural(&()));
    let reports_failed = failed(&NodePolicyReport::plural(&()));
    let modules_failed = failed(&PolicyModule::plural(&()));
    stream::select_all([
        nodes.map(move |event| event.map_or_else(&nodes_failed, Change::Node)).boxed(),
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

/// Whether the same request may succeed in a while: the API server does not answer, is busy, or does not take the token at present.
/// Any other answer lasts, such as 403 for a ConfigMap that the role does not allow; such a problem waits for the next count.
fn may_succeed_later(error: &kube::Error) -> bool {
    let kube::Error::Api(answer) = error else { return true };
    matches!(answer.code, 401 | 429) || answer.code >= 500
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::may_succeed_later;

    #[test]
    fn only_an_answer_that_may_change_is_asked_for_again() {
        let answer = |code| kube::Error::Api(Box::new(Status { code, ..Status::default() }));
        let again = [401, 403, 404, 400, 422, 429, 500, 503].map(|code| may_succeed_later(&answer(code)));
        assert_eq!(again, [true, false, false, false, false, true, true, true]);
        let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
        assert!(may_succeed_later(&kube::Error::Service(late.into())));
    }
}
