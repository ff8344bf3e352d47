//! Writes this node's report after changes, several changes in one write, and spread over time so that not all nodes write at once.
//!
//! A change that reaches every node at once, such as a new PolicyModule, would make all of them write at once. So each agent waits for its
//! place in a time span that grows with the fleet, for about [`WRITES_PER_SECOND`] writes of all nodes together. The size of the fleet is
//! in the PolicyModules' status, which is watched anyway. Counts alone cause no write; they are updated every [`COUNTS_INTERVAL`]. An
//! unchanged report is written again every [`REFRESH_INTERVAL`], so that a dead agent can be told from an idle one.
//!
//! A report with a request for the controller ([`asked`]) is written again often enough for the controller to know that the agent is
//! alive. Each write returns the whole object and with it the controller's answer, so an agent needs no permission to read reports,
//! neither its own nor others'. While an answer is outstanding, the agent writes the same report again, which changes nothing.
//!
//! The API server records when it received a report. If the node's own clock differs from that, tokens and certificates
//! may be refused without an obvious reason.

mod asked;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use self::asked::{Asked, pulse_of, without_reasons};
use super::answered;
use super::api_errors::explain;
use super::cache::Cache;
use super::outbox::{FinalReport, Reported};
use crate::node_report::{
    ControllerAnswer, NodePolicyReport, NodePolicyReportSpec, NodePolicyReportStatus, REFRESH_INTERVAL, ReportedCounts,
};

/// Target rate of all nodes' writes together while all have changes.
const WRITES_PER_SECOND: u32 = 100;
/// Number of nodes that is assumed without a controller's count.
const UNCOUNTED: u32 = 500;
/// Delay in which further changes join a report.
const GATHERED: Duration = Duration::from_secs(1);
/// The longest span over which a fleet's writes are spread.
const MAX_SPREAD: Duration = Duration::from_secs(300);
/// Interval at which counts are updated.
const COUNTS_INTERVAL: Duration = Duration::from_secs(300);
/// Clocks that differ by less count as equal: the API server records full seconds, and a response takes its time.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(30);
/// The written object, as messages name it.
const WHAT: &str = "the node's report";
/// First pause after a failed write; each further failure doubles it, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Writes the newest report whenever it is due, until the channel is closed.
#[expect(clippy::disallowed_methods, reason = "a report's age shows whether the node's clock is wrong")]
pub(super) async fn run(client: Client, node: &str, cache: &Cache, mut newest: watch::Receiver<Option<Reported>>) {
    let place = place(node);
    let mut clock: Option<Condition> = None;
    let mut written: Option<(NodePolicyReportStatus, Instant)> = None;
    let mut pause = FIRST_PAUSE;
    let mut asked = Asked::default();
    let mut is_pulse = false;
    let mut look = Instant::now();
    let mut last: Option<Reported> = None;
    loop {
        let pulse =
            written.as_ref().map_or(REFRESH_INTERVAL, |(report, at)| pulse_of(report).saturating_sub(at.elapsed()));
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = sleep(pulse) => {
                is_pulse = written.as_ref().is_some_and(|(report, _)| pulse_of(report) < REFRESH_INTERVAL);
                written = None;
            }
            () = sleep_until(look), if asked.waits() => {}
        }
        if asked.waits() && look <= Instant::now() {
            look = look_again(&client, node, cache, last.as_ref(), clock.as_ref(), &mut asked).await;
        }
        loop {
            let Some((report, _)) = newest.borrow_and_update().clone() else { break };
            let wait = match &written {
                Some((before, _)) if *before == report => break,
                // An urgent request is written at once: few nodes have any.
                Some((before, at)) if asked.is_pressing(before, &report) => GATHERED.saturating_sub(at.elapsed()),
                Some((before, at)) if is_change(before, &report) => {
                    wait_of_change(before, at.elapsed(), spread(cache.fleet(), place))
                }
                Some((_, at)) => (COUNTS_INTERVAL + spread(cache.fleet(), place)).saturating_sub(at.elapsed()),
                // Rewrites of nodes that started at different moments stay apart.
                None if is_pulse => Duration::ZERO,
                None if asked.is_pressing(&NodePolicyReportStatus::default(), &report) => GATHERED,
                None => spread(cache.fleet(), place).min(pulse_of(&report)),
            };
            if !wait.is_zero() {
                let due = Instant::now() + wait;
                // Other changes shorten the wait for a write of counts only, and the counts go along.
                if let Some((before, at)) = written.as_ref().filter(|(before, _)| !is_change(before, &report)) {
                    let due = due.min(*at + pulse_of(before));
                    tokio::select! {
                        () = sleep_until(due) => {}
                        () = sleep_until(look), if asked.waits() => break,
                        changed = newest.changed() => if changed.is_err() { return } else { continue },
                    }
                } else {
                    let nothing = NodePolicyReportStatus::default();
                    let before = written.as_ref().map_or(&nothing, |(before, _)| before);
                    loop {
                        tokio::select! {
                            () = sleep_until(due) => break,
                            // The agent ends a pod by itself if it reads no answer, so the answer does not wait for the change.
                            () = sleep_until(look), if asked.waits() => {
                                look = look_again(&client, node, cache, last.as_ref(), clock.as_ref(), &mut asked).await;
                            }
                            changed = newest.changed() => {
                                if changed.is_err() {
                                    return;
                                }
                                let is_pressing = |report: &NodePolicyReportStatus| asked.is_pressing(before, report);
                                let is_more = |now| is_pressing(now) && !is_pressing(&report);
                                if newest.borrow().as_ref().is_some_and(|(now, _)| is_more(now)) {
                                    break;
                                }
                            }
                        }
                    }
                }
            }
            is_pulse = false;
            let Some((report, at)) = newest.borrow_and_update().clone() else { break };
            match write(&client, node, &report, at, clock.as_ref()).await {
                Ok(taken) => {
                    pause = FIRST_PAUSE;
                    cache.written(WHAT, Ok(()));
                    asked = Asked::of(&report);
                    asked.take(taken.answer.as_ref());
                    look = Instant::now() + asked.pause();
                    cache.answered(taken.answer);
                    last = Some((report.clone(), at));
                    let agrees = taken.at.map(|taken| compare(clock.as_ref(), taken, Timestamp::now()));
                    let is_change = agrees.as_ref().is_some_and(|agrees| differs(clock.as_ref(), agrees));
                    clock = agrees.or(clock);
                    // A clock that starts or stops to differ is reported at once by another write.
                    written = (!is_change).then(|| (report, Instant::now()));
                }
                Err(error) => {
                    tracing::warn!(
                        node,
                        error = explain(&error),
                        "the node's report is not written; tried again later"
                    );
                    cache.written(WHAT, Err(explain(&error)));
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }
}

/// Reads the controller's answer to the last report. Returns when to read it again.
///
/// Writing the same report changes nothing, and the response holds the whole object.
async fn look_again(
    client: &Client,
    node: &str,
    cache: &Cache,
    last: Option<&Reported>,
    clock: Option<&Condition>,
    asked: &mut Asked,
) -> Instant {
    if let Some((report, at)) = last {
        match write(client, node, report, *at, clock).await {
            Ok(taken) => {
                asked.take(taken.answer.as_ref());
                cache.answered(taken.answer);
            }
            Err(error) => tracing::debug!(node, error = explain(&error), "the controller's answer is not read"),
        }
    }
    asked.wait_longer();
    Instant::now() + asked.pause()
}

/// The node's constant place among all nodes, from 0 to 1.
fn place(node: &str) -> f64 {
    let digest = Sha256::digest(format!("report/{node}"));
    digest.iter().take(4).fold(0.0, |place, byte| (place + f64::from(*byte)) / 256.0)
}

/// Delay of a node's write. `fleet` is 0 without a controller: then a fleet of [`UNCOUNTED`] nodes is assumed, and a single node
/// waits a little longer than needed.
fn spread(fleet: u32, place: f64) -> Duration {
    let fleet = if fleet == 0 { UNCOUNTED } else { fleet };
    let span = Duration::from_secs(u64::from(fleet / WRITES_PER_SECOND)).min(MAX_SPREAD);
    GATHERED + span.mul_f64(place)
}

/// How long a change waits, `elapsed` after the last write: for its place in the fleet, at least until 5 s after that write, and no longer
/// than its requests let the report grow old.
fn wait_of_change(before: &NodePolicyReportStatus, elapsed: Duration, spread: Duration) -> Duration {
    let shortest = (GATHERED * 5).saturating_sub(elapsed);
    spread.max(shortest).min(pulse_of(before).saturating_sub(elapsed))
}

/// Whether more than counts has changed. The last released knob counts as a change: an uninstall waits for it.
fn is_change(before: &NodePolicyReportStatus, now: &NodePolicyReportStatus) -> bool {
    let uncounted = |report: &NodePolicyReportStatus| NodePolicyReportStatus {
        counts: ReportedCounts::default(),
        resources: without_reasons(&report.resources),
        ..report.clone()
    };
    let holds = |report: &NodePolicyReportStatus| report.counts.knobs > 0;
    holds(before) != holds(now) || uncounted(before) != uncounted(now)
}

/// Waits for the node's final report and writes it.
#[expect(clippy::disallowed_methods, reason = "a report's age shows whether the node's clock is wrong")]
pub(super) async fn close(client: Client, node: &str, mut final_report: mpsc::Receiver<FinalReport>) {
    let Some((report, written)) = final_report.recv().await else { return std::future::pending().await };
    if let Err(error) = write(&client, node, &report, Timestamp::now(), None).await {
        tracing::info!(node, error = explain(&error), "the node's last report is not written");
    }
    // The agent may have stopped waiting.
    written.try_send(()).ok();
}

/// The API server's response to a write.
struct Taken {
    /// When the API server accepted the write, by its own clock.
    at: Option<Timestamp>,
    /// The controller's answer in the report, which agents never overwrite.
    answer: Option<ControllerAnswer>,
}

/// Writes a report.
async fn write(
    client: &Client,
    node: &str,
    report: &NodePolicyReportStatus,
    at: Timestamp,
    clock: Option<&Condition>,
) -> Result<Taken, kube::Error> {
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
    let at = ours.filter_map(|entry| entry.time).map(|time| time.0).max();
    Ok(Taken { at, answer: written.status.and_then(|status| status.controller) })
}

/// The condition `ClockAgrees`. An unchanged condition keeps its transition time.
fn compare(before: Option<&Condition>, server: Timestamp, own: Timestamp) -> Condition {
    let apart = own.duration_since(server);
    let (status, reason, message) = if apart.abs() <= CLOCKS_AGREE {
        ("True", "InStep", "the node's clock is the API server's".to_owned())
    } else {
        let side = if apart.is_positive() { "ahead of" } else { "behind" };
        // In minutes, so that the message does not change with each report.
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

/// Whether the clock started or stopped to differ. A clock that agrees from the start is no change.
fn differs(before: Option<&Condition>, now: &Condition) -> bool {
    let agreed = before.is_none_or(|before| before.status == "True");
    let differs = agreed != (now.status == "True");
    if differs {
        tracing::warn!(condition = now.message, "clock compared with the API server's");
    }
    differs
}

/// Creates the report, owned by its Node, so that Kubernetes deletes it with the Node.
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
    use kube::Config;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::node_report::{ReportedEviction, ReportedResource, Urgency};

    /// The body of a request, once all of it has been read.
    fn body(request: &[u8]) -> Option<Value> {
        let end = request.windows(4).position(|window| window == b"\r\n\r\n")?;
        let (head, body) = request.split_at(end + 4);
        let head = String::from_utf8_lossy(head).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap().trim().parse::<usize>();
        (body.len() >= length.unwrap()).then(|| serde_json::from_slice(body).unwrap())
    }

    /// Receives one write. Returns its connection and the written status.
    async fn received(listener: &TcpListener) -> (TcpStream, Value) {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        loop {
            let length = connection.read_buf(&mut request).await.unwrap();
            assert_ne!(length, 0, "the request is not complete");
            if let Some(body) = body(&request) {
                return (connection, body["status"].clone());
            }
        }
    }

    /// Accepts a write, as an API server that has this answer of the controller.
    async fn accept(mut connection: TcpStream, answer: Option<Value>) {
        let status = answer.map_or(json!({}), |answer| json!({"controller": answer}));
        let report = json!({
            "apiVersion": crate::object::API_VERSION, "kind": "NodePolicyReport", "metadata": {"name": "here"},
            "spec": {"node": "here"}, "status": status,
        });
        let (report, kind) = (report.to_string(), "application/json");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", report.len());
        connection.write_all(format!("{head}Connection: close\r\n\r\n{report}").as_bytes()).await.unwrap();
        connection.shutdown().await.ok();
    }

    #[test]
    fn an_answer_is_read_while_another_change_of_the_report_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
            config.root_cert = Some(Vec::new());
            let client = Client::try_from(config).unwrap();
            let (wake, mut woken) = mpsc::unbounded_channel();
            let cache = Cache::new(&[], Box::new(move || wake.send(()).unwrap_or_default()));
            let (report, newest) = watch::channel(None);
            let asks = |amount| NodePolicyReportStatus {
                resources: vec![ReportedResource {
                    name: "kubernetes.io/batch-cpu".into(),
                    amount,
                    ..Default::default()
                }],
                evictions: vec![ReportedEviction { uid: "u1".into(), urgency: Urgency::Now, ..Default::default() }],
                ..NodePolicyReportStatus::default()
            };
            let send = |amount| drop(report.send_replace(Some((asks(amount), Timestamp::UNIX_EPOCH))));
            let amount = |status: &Value| status["resources"][0]["amount"].as_u64();
            send(1);
            let server = async {
                let (connection, written) = received(&listener).await;
                assert_eq!(amount(&written), Some(1));
                accept(connection, None).await;
                send(2);
                let (connection, written) = received(&listener).await;
                assert_eq!(amount(&written), Some(1), "the answer is read only with the next change");
                accept(connection, Some(json!({"evictions": [{"uid": "u1", "outcome": "refused"}]}))).await;
                woken.recv().await.unwrap();
            };
            tokio::select! {
                () = run(client, "here", &cache, newest) => panic!("the channel is open"),
                () = server => {}
            }
        });
    }

    #[test]
    fn a_change_waits_for_its_place_and_not_until_what_it_asks_for_is_stale() {
        let asks = |stale| NodePolicyReportStatus {
            resources: vec![ReportedResource::default()],
            resources_stale_after_seconds: Some(stale),
            ..NodePolicyReportStatus::default()
        };
        let seconds = Duration::from_secs;
        for (before, elapsed, spread, expected) in [
            (NodePolicyReportStatus::default(), 100, 300, 300),
            (NodePolicyReportStatus::default(), 1, 1, 4),
            (asks(60), 0, 300, pulse_of(&asks(60)).as_secs()),
            (asks(60), 5, 300, pulse_of(&asks(60)).as_secs() - 5),
            (asks(60), 1000, 300, 0),
        ] {
            let wait = wait_of_change(&before, seconds(elapsed), seconds(spread));
            assert_eq!(wait, seconds(expected), "{elapsed} s after the last write, {spread} s of spread");
        }
    }

    #[test]
    fn counts_are_no_change_unless_the_last_knob_was_released() {
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
            assert_eq!(is_change(&before, &now), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_wrong_clock_is_reported_once_and_again_when_it_is_right() {
        let server = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |seconds| server.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let mut clock = None;
        let mut published = Vec::new();
        for own in [0, -29, 30, 400, 430, -4000, 1] {
            let condition = compare(clock.as_ref(), server, at(own));
            published.push((own, differs(clock.as_ref(), &condition), condition.status.clone()));
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
        assert_eq!(published, expected.map(|(own, news, status)| (own, news, status.to_owned())));
        let ahead = compare(None, server, at(400));
        assert!(ahead.message.contains("about 7 min ahead of the API server's"), "{}", ahead.message);
        assert_eq!(compare(Some(&ahead), server, at(900)).last_transition_time, Time(at(400)));
        assert!(compare(None, server, at(-90)).message.contains("about 2 min behind"));
    }

    #[test]
    fn a_fleet_writes_about_a_hundred_reports_a_second_and_a_few_nodes_at_once() {
        assert_eq!(spread(3, 0.99), GATHERED);
        assert!(spread(0, 0.99) > GATHERED * 5, "of an unknown number");
        assert_eq!(spread(15_000, 0.0), GATHERED);
        let last = spread(15_000, 0.999);
        assert!((Duration::from_secs(149)..Duration::from_secs(152)).contains(&last), "{last:?}");
        assert!(spread(10_000_000, 1.0) <= GATHERED + MAX_SPREAD);
        assert!((0..100).map(|node| place(&node.to_string())).all(|place| (0.0..1.0).contains(&place)));
    }
}
