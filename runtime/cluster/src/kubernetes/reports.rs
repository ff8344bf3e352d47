//! This node's report: written when it changes, several changes in one write, and never by all nodes at once.
//!
//! A change that reaches every node at the same moment, such as a new PolicyModule, would have all of them write at the same moment.
//! So each waits for its place in a span that grows with the fleet, for about [`WRITES_PER_SECOND`] altogether. How large the
//! fleet is stands in the PolicyModules' status, which is watched anyway. Counts alone are no news; they are brought up to date
//! every [`COUNTS_EVERY`]. A report without news is written again every [`REFRESHED_EVERY`], so that an agent that has died can be told
//! from one that has nothing to say.
//!
//! The API server notes when it took a report. That is compared with the node's own clock: where the two differ, tokens and certificates
//! are refused for reasons that nobody understands.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::answered;
use super::mirror::Mirror;
use super::outbox::{Farewell, Reported};
use super::trouble::explain;
use crate::node_report::{
    NodePolicyReport, NodePolicyReportSpec, NodePolicyReportStatus, REFRESHED_EVERY, ReportedCounts,
};

/// What all nodes together write when all have something to say.
const WRITES_PER_SECOND: u32 = 100;
/// As many nodes are assumed where there is no count.
const UNCOUNTED: u32 = 500;
/// What follows a change within so long goes with it.
const GATHERED: Duration = Duration::from_secs(1);
/// The longest span over which a fleet's writes are spread.
const LONGEST_SPREAD: Duration = Duration::from_secs(300);
/// How often counts are brought up to date.
const COUNTS_EVERY: Duration = Duration::from_secs(300);
/// Clocks that differ by less agree: the API server notes full seconds, and an answer takes its time.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(30);
/// What is written, for people.
const WHAT: &str = "the node's report";
/// The pause after a write that failed; doubled up to the next.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Writes the newest report whenever it is due, for as long as somebody makes some.
pub(super) async fn run(client: Client, node: &str, mirror: &Mirror, mut newest: watch::Receiver<Option<Reported>>) {
    let place = place(node);
    let mut clock: Option<Condition> = None;
    let mut written: Option<(NodePolicyReportStatus, Instant)> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        match timeout(REFRESHED_EVERY, newest.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => written = None,
        }
        loop {
            let Some((report, _)) = newest.borrow_and_update().clone() else { break };
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
            let Some((report, at)) = newest.borrow_and_update().clone() else { break };
            match write(&client, node, &report, at, clock.as_ref()).await {
                Ok(taken) => {
                    pause = FIRST_PAUSE;
                    mirror.written(WHAT, Ok(()));
                    let agrees = taken.map(|taken| compare(clock.as_ref(), taken, Timestamp::now()));
                    let is_news = agrees.as_ref().is_some_and(|agrees| differs(clock.as_ref(), agrees));
                    clock = agrees.or(clock);
                    // A clock that is wrong is told at once; a report that told it now has nothing to add.
                    written = (!is_news).then(|| (report, Instant::now()));
                }
                Err(error) => {
                    tracing::warn!(
                        node,
                        error = explain(&error),
                        "the node's report is not written; tried again later"
                    );
                    mirror.written(WHAT, Err(explain(&error)));
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

/// `fleet` is 0 where nobody has counted it: then some are assumed, and a single node waits a little longer than it would have to.
fn spread(fleet: u32, place: f64) -> Duration {
    let fleet = if fleet == 0 { UNCOUNTED } else { fleet };
    let span = Duration::from_secs(u64::from(fleet / WRITES_PER_SECOND)).min(LONGEST_SPREAD);
    GATHERED + span.mul_f64(place)
}

/// At least so long lies between two writes.
fn since(last: Instant) -> Duration {
    (GATHERED * 5).saturating_sub(last.elapsed())
}

/// Whether more than counts has changed. That nothing is held any more is news: whoever uninstalls waits for it.
fn is_news(before: &NodePolicyReportStatus, now: &NodePolicyReportStatus) -> bool {
    let uncounted = |report: &NodePolicyReportStatus| NodePolicyReportStatus {
        counts: ReportedCounts::default(),
        ..report.clone()
    };
    let holds = |report: &NodePolicyReportStatus| report.counts.knobs > 0;
    holds(before) != holds(now) || uncounted(before) != uncounted(now)
}

/// Writes a node's last report, once there is one.
pub(super) async fn close(client: Client, node: &str, mut farewell: mpsc::Receiver<Farewell>) {
    let Some((report, written)) = farewell.recv().await else { return std::future::pending().await };
    if let Err(error) = write(&client, node, &report, Timestamp::now(), None).await {
        tracing::info!(node, error = explain(&error), "the node's last report is not written");
    }
    // Nobody waits that long for ever.
    written.try_send(()).ok();
}

/// Writes a report. Returns when the API server took it, by its own clock.
async fn write(
    client: &Client,
    node: &str,
    report: &NodePolicyReportStatus,
    at: Timestamp,
    clock: Option<&Condition>,
) -> Result<Option<Timestamp>, kube::Error> {
    let reports: Api<NodePolicyReport> = Api::all(client.clone());
    let mut report = NodePolicyReportStatus { reported_at: Some(Time(at)), ..report.clone() };
    report.conditions.extend(clock.cloned());
    let status = serde_json::json!({
        "apiVersion": crate::object::API_VERSION,
        "kind": "NodePolicyReport",
        "metadata": {"name": node},
        "status": report,
    });
    let params = PatchParams::apply(super::events::CONTROLLER).force();
    let patch = Patch::Apply(&status);
    let written = match answered(reports.patch_status(node, &params, &patch)).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            answered(create(client, &reports, node)).await?;
            answered(reports.patch_status(node, &params, &patch)).await?
        }
        answer => answer?,
    };
    let fields = written.metadata.managed_fields.unwrap_or_default();
    let ours = fields.into_iter().filter(|entry| entry.manager.as_deref() == Some(super::events::CONTROLLER));
    Ok(ours.filter_map(|entry| entry.time).map(|time| time.0).max())
}

/// Whether a node's clock is the API server's, as a condition. One that stays keeps its time.
fn compare(before: Option<&Condition>, server: Timestamp, own: Timestamp) -> Condition {
    let apart = own.duration_since(server);
    let (status, reason, message) = if apart.abs() <= CLOCKS_AGREE {
        ("True", "InStep", "the node's clock is the API server's".to_owned())
    } else {
        let side = if apart.is_positive() { "ahead of" } else { "behind" };
        // To the minute: what is told must not change with each report.
        let minutes = apart.unsigned_abs().as_secs().div_ceil(60);
        let message = format!(
            "the node's clock is about {minutes} min {side} the API server's; tokens, certificates and holds that end are judged by \
             clocks: set the node's by NTP or PTP"
        );
        ("False", "ClockSkew", message)
    };
    let same = before.filter(|before| before.status == status);
    Condition {
        type_: "ClockAgrees".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: None,
        last_transition_time: same.map_or(Time(own), |before| before.last_transition_time.clone()),
    }
}

/// Whether a clock went wrong, or right again. That one is right from the start is no news.
fn differs(before: Option<&Condition>, now: &Condition) -> bool {
    let agreed = before.is_none_or(|before| before.status == "True");
    let differs = agreed != (now.status == "True");
    if differs {
        tracing::warn!(condition = now.message, "clock compared with the API server's");
    }
    differs
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_no_news_unless_nothing_is_held_any_more() {
        let report = |knobs, summary: &str| NodePolicyReportStatus {
            counts: ReportedCounts { knobs, ..ReportedCounts::default() },
            summary: summary.into(),
            ..NodePolicyReportStatus::default()
        };
        for (before, now, expected) in [
            (report(5, "1/1"), report(9, "1/1"), false),
            (report(5, "1/1"), report(5, "0/1"), true),
            (report(5, "1/1"), report(0, "1/1"), true),
            (report(0, "1/1"), report(5, "1/1"), true),
        ] {
            assert_eq!(is_news(&before, &now), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_clock_that_is_wrong_is_told_once_and_again_when_it_is_right() {
        let server = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |seconds| server.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let mut clock = None;
        let mut told = Vec::new();
        for own in [0, -29, 30, 400, 430, -4000, 1] {
            let condition = compare(clock.as_ref(), server, at(own));
            told.push((own, differs(clock.as_ref(), &condition), condition.status.clone()));
            clock = Some(condition);
        }
        let expected = [
            (0, false, "True"),
            (-29, false, "True"),
            (30, false, "True"),
            (400, true, "False"),
            (430, false, "False"),
            (-4000, false, "False"),
            (1, true, "True"),
        ];
        assert_eq!(told, expected.map(|(own, news, status)| (own, news, status.to_owned())));
        let ahead = compare(None, server, at(400));
        assert!(ahead.message.contains("about 7 min ahead of the API server's"), "{}", ahead.message);
        assert_eq!(compare(Some(&ahead), server, at(900)).last_transition_time, Time(at(400)));
        assert!(compare(None, server, at(-90)).message.contains("about 2 min behind"));
    }

    #[test]
    fn a_fleet_writes_about_a_hundred_reports_a_second_and_a_few_nodes_at_once() {
        assert_eq!(spread(3, 0.99), GATHERED);
        assert!(spread(0, 0.99) > GATHERED * 5, "of nobody knows how many");
        assert_eq!(spread(15_000, 0.0), GATHERED);
        let last = spread(15_000, 0.999);
        assert!((Duration::from_secs(149)..Duration::from_secs(152)).contains(&last), "{last:?}");
        assert!(spread(10_000_000, 1.0) <= GATHERED + LONGEST_SPREAD);
        assert!((0..100).map(|node| place(&node.to_string())).all(|place| (0.0..1.0).contains(&place)));
    }
}
