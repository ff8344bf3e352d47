//! This node's report: written when it changes, several changes in one write, and never by all nodes at once.
//!
//! A change that reaches every node at the same moment, such as a new PolicyModule, would have all of them write at the same moment.
//! So each waits for its place in a span that grows with the fleet, for about [`WRITES_PER_SECOND`] altogether. How large the
//! fleet is stands in the PolicyModules' status, which is watched anyway. Counts alone are no news; they are brought up to date
//! every [`COUNTS_EVERY`].

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::mirror::Mirror;
use super::trouble::explain;
use crate::node_report::{NodePolicyReport, NodePolicyReportSpec, NodePolicyReportStatus, ReportedCounts};

/// What all nodes together write when all have something to say.
const WRITES_PER_SECOND: u32 = 100;
/// What follows a change within so long goes with it.
const GATHERED: Duration = Duration::from_secs(1);
/// The longest span over which a fleet's writes are spread.
const LONGEST_SPREAD: Duration = Duration::from_secs(300);
/// How often counts are brought up to date.
const COUNTS_EVERY: Duration = Duration::from_secs(300);
/// The pause after a write that failed; doubled up to the next.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Writes the newest report whenever it is due, for as long as somebody makes some.
pub(super) async fn run(
    client: Client,
    node: &str,
    mirror: &Mirror,
    mut newest: watch::Receiver<Option<NodePolicyReportStatus>>,
) {
    let place = place(node);
    let mut written: Option<(NodePolicyReportStatus, Instant)> = None;
    let mut pause = FIRST_PAUSE;
    while newest.changed().await.is_ok() {
        loop {
            let Some(report) = newest.borrow_and_update().clone() else { break };
            let wait = match &written {
                Some((before, _)) if *before == report => break,
                Some((before, at)) if is_news(before, &report) => spread(mirror.fleet(), place).max(since(*at)),
                Some((_, at)) => (COUNTS_EVERY + spread(mirror.fleet(), place)).saturating_sub(at.elapsed()),
                None => spread(mirror.fleet(), place),
            };
            if !wait.is_zero() {
                let due = Instant::now() + wait;
                // News shorten the wait for a time when only counts were due; what else comes meanwhile goes along.
                if matches!(&written, Some((before, _)) if !is_news(before, &report)) {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        changed = newest.changed() => if changed.is_err() { return } else { continue },
                    }
                } else {
                    sleep_until(due).await;
                }
            }
            let Some(report) = newest.borrow_and_update().clone() else { break };
            match write(&client, node, &report).await {
                Ok(()) => {
                    written = Some((report, Instant::now()));
                    pause = FIRST_PAUSE;
                }
                Err(error) => {
                    tracing::warn!(
                        node,
                        error = explain(&error),
                        "the node's report is not written; tried again later"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// A node's place among all, from 0 to 1: it never changes.
fn place(node: &str) -> f64 {
    let digest = Sha256::digest(format!("report/{node}"));
    digest.iter().take(4).fold(0.0, |place, byte| (place + f64::from(*byte)) / 256.0)
}

fn spread(fleet: u32, place: f64) -> Duration {
    let span = Duration::from_secs(u64::from(fleet / WRITES_PER_SECOND)).min(LONGEST_SPREAD);
    GATHERED + span.mul_f64(place)
}

/// At least so long lies between two writes.
fn since(last: Instant) -> Duration {
    (GATHERED * 5).saturating_sub(last.elapsed())
}

/// Whether more than counts has changed.
fn is_news(before: &NodePolicyReportStatus, now: &NodePolicyReportStatus) -> bool {
    let uncounted = |report: &NodePolicyReportStatus| NodePolicyReportStatus {
        counts: ReportedCounts::default(),
        ..report.clone()
    };
    uncounted(before) != uncounted(now)
}

async fn write(client: &Client, node: &str, report: &NodePolicyReportStatus) -> Result<(), kube::Error> {
    let reports: Api<NodePolicyReport> = Api::all(client.clone());
    let status = serde_json::json!({
        "apiVersion": crate::object::API_VERSION,
        "kind": "NodePolicyReport",
        "metadata": {"name": node},
        "status": report,
    });
    let params = PatchParams::apply(super::events::CONTROLLER).force();
    let patch = Patch::Apply(&status);
    match reports.patch_status(node, &params, &patch).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            create(client, &reports, node).await?;
            reports.patch_status(node, &params, &patch).await.map(drop)
        }
        answer => answer.map(drop),
    }
}

/// Makes the report, owned by its node, so that it goes when the node goes.
async fn create(client: &Client, reports: &Api<NodePolicyReport>, node: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let owner = nodes.get_metadata(node).await?.metadata;
    let report = NodePolicyReport {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            owner_references: owner.uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: node.to_owned(),
                    uid,
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        spec: NodePolicyReportSpec { node: node.to_owned() },
        status: None,
    };
    match reports.create(&PostParams::default(), &report).await {
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        answer => answer.map(drop),
    }
}
