//! Events on pods: rate-limited, and repeated events are counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::core::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::answered;
use super::api_errors::explain;
use super::cache::Cache;
use super::outbox::PodEvent;

/// Source of the agent's events.
pub(crate) const CONTROLLER: &str = "qosm";
/// First pause after a temporary failure; each further failure doubles it, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Number of attempts for an event that the API server answers with server errors.
const MAX_ERRORS: u32 = 5;
/// Number of attempts for an event that the API server denies, over at least a minute: an API server that has just started denies
/// everything until it has read its roles.
const MAX_DENIALS: u32 = 7;
/// The written objects, as messages name them.
const WHAT: &str = "events on pods";
/// Maximum length of an event's note in Kubernetes, in bytes.
const MAX_NOTE: usize = 1024;

/// Publishes events until the channel is closed.
#[expect(clippy::disallowed_methods, reason = "the rate of events is bounded where they are sent")]
pub(super) async fn run(client: Client, node: &str, cache: &Cache, mut events: mpsc::Receiver<PodEvent>) {
    let reporter = Reporter { controller: CONTROLLER.into(), instance: Some(node.to_owned()) };
    let recorder = Recorder::new(client, reporter);
    let mut budget = Budget::default();
    // Whether the last event was denied for good: later events then wait no more for that permission.
    let mut is_denied = false;
    while let Some(event) = events.recv().await {
        if !budget.take(&event, Instant::now()) {
            tracing::debug!(pod = event.name, reason = event.reason, "too many events; not published");
            continue;
        }
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(event.namespace.clone()),
            name: Some(event.name.clone()),
            uid: Some(event.uid.clone()),
            ..ObjectReference::default()
        };
        let (mut pause, mut answers) =
            (FIRST_PAUSE, Answers { denials: u32::from(is_denied) * MAX_DENIALS, errors: 0 });
        let published = loop {
            match publish(&recorder, &regarding, event.is_warning, &event.reason, &event.message, &event.source).await {
                Ok(()) => break Ok(()),
                Err(error) if answers.is_final(&error) => break Err(error),
                Err(error) => {
                    tracing::warn!(
                        pod = event.name,
                        reason = event.reason,
                        error = explain(&error),
                        "event not published"
                    );
                    cache.written(WHAT, Err(explain(&error)));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        };
        is_denied = published.as_ref().is_err_and(lacks_right);
        match published {
            Ok(()) => cache.written(WHAT, Ok(())),
            Err(error) => {
                tracing::warn!(pod = event.name, reason = event.reason, error = explain(&error), "event given up");
                cache.written(WHAT, if is_denied { Err(explain(&error)) } else { Ok(()) });
            }
        }
    }
}

/// Failed attempts to publish one event. An unreachable API server does not count: the agent waits for it.
#[derive(Debug, Default)]
struct Answers {
    denials: u32,
    errors: u32,
}

impl Answers {
    /// Whether to drop the event, so that others need not wait: the API server refuses it, or fails or denies it repeatedly.
    fn is_final(&mut self, error: &kube::Error) -> bool {
        match error {
            kube::Error::Api(_) if lacks_right(error) => {
                self.denials += 1;
                self.denials >= MAX_DENIALS
            }
            kube::Error::Api(answer) if matches!(answer.code, 401 | 429) => false,
            kube::Error::Api(answer) if answer.code >= 500 => {
                self.errors += 1;
                self.errors >= MAX_ERRORS
            }
            kube::Error::Api(_) => true,
            _ => false,
        }
    }
}

/// Whether the agent's service account lacks the permission to write events. A namespace that is being deleted denies events too,
/// but names that as the cause.
fn lacks_right(error: &kube::Error) -> bool {
    let is_denial =
        |answer: &Status| answer.code == 403 && answer.details.as_ref().is_none_or(|details| details.causes.is_empty());
    matches!(error, kube::Error::Api(answer) if is_denial(answer))
}

/// Publishes one event.
///
/// # Errors
///
/// The API server does not answer, or refuses the event.
pub(crate) async fn publish(
    recorder: &Recorder,
    regarding: &ObjectReference,
    is_warning: bool,
    reason: &str,
    message: &str,
    source: &str,
) -> Result<(), kube::Error> {
    let event = Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.to_owned(),
        note: Some(shortened(message)),
        action: action(source, message),
        secondary: None,
    };
    answered(recorder.publish(&event, regarding)).await
}

/// The event's action. The recorder counts an event as a repetition if everything but the note is equal, so a digest of the note
/// goes in here: otherwise a second message would only raise the count of the first.
fn action(source: &str, message: &str) -> String {
    let digest = Sha256::digest(format!("{source}: {message}"));
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("qosm-{short}")
}

fn shortened(message: &str) -> String {
    if message.len() <= MAX_NOTE {
        return message.to_owned();
    }
    let mut end = MAX_NOTE - '…'.len_utf8();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", message.get(..end).unwrap_or_default())
}

/// Token buckets: one for each pod, as in Kubernetes' own components, and two for the node, so that normal events do not use up
/// the budget of warnings.
#[derive(Debug, Default)]
struct Budget {
    pods: HashMap<String, Bucket>,
    warnings: Option<Bucket>,
    news: Option<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Takes a token. Returns `false` if there is none: the bucket holds `burst`, and refills by one each `every`.
    fn take(&mut self, burst: f64, every: Duration, now: Instant) -> bool {
        self.tokens = self.filled(burst, every, now);
        self.at = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    fn filled(&self, burst: f64, every: Duration, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens + since / every.as_secs_f64()).min(burst)
    }
}

impl Budget {
    const POD_BURST: f64 = 25.0;
    const POD_INTERVAL: Duration = Duration::from_secs(300);
    const NODE_BURST: f64 = 100.0;
    const NODE_INTERVAL: Duration = Duration::from_secs(1);

    fn take(&mut self, event: &PodEvent, now: Instant) -> bool {
        // Forgets full buckets: a new bucket starts full.
        self.pods.retain(|_, bucket| bucket.filled(Self::POD_BURST, Self::POD_INTERVAL, now) < Self::POD_BURST);
        let full = |tokens| Bucket { tokens, at: now };
        let of_pod = self.pods.entry(event.uid.clone()).or_insert_with(|| full(Self::POD_BURST));
        let of_node = if event.is_warning { &mut self.warnings } else { &mut self.news };
        let of_node = of_node.get_or_insert_with(|| full(Self::NODE_BURST));
        of_pod.take(Self::POD_BURST, Self::POD_INTERVAL, now)
            && of_node.take(Self::NODE_BURST, Self::NODE_INTERVAL, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: &str, is_warning: bool) -> PodEvent {
        let (namespace, name, uid) = ("default".to_owned(), pod.to_owned(), pod.to_owned());
        let (reason, message, source) = ("Reason".to_owned(), "message".to_owned(), "agent".to_owned());
        PodEvent { namespace, name, uid, is_warning, reason, message, source }
    }

    #[test]
    fn a_noisy_pod_does_not_silence_another() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (noisy, quiet) = (event("noisy", true), event("quiet", true));
        let published = (0..40).filter(|_| budget.take(&noisy, now)).count();
        assert_eq!(published, 25);
        assert!(budget.take(&quiet, now));
        assert!(!budget.take(&noisy, now + Duration::from_secs(299)));
        assert!(budget.take(&noisy, now + Duration::from_secs(601)));
    }

    #[test]
    fn events_of_a_node_are_bounded_and_warnings_still_pass() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let published = (0..200).filter(|pod| budget.take(&event(&pod.to_string(), false), now)).count();
        assert_eq!(published, 100);
        assert!(budget.take(&event("later", false), now + Duration::from_secs(2)));
        assert!(budget.take(&event("ill", true), now));
    }

    #[test]
    fn an_event_waits_for_an_api_server_that_reads_its_roles_and_a_refusal_is_final() {
        let answer = |code: u16, causes: serde_json::Value| {
            let status = serde_json::json!({"code": code, "reason": "", "message": "", "details": {"causes": causes}});
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        let denied = || answer(403, serde_json::json!([]));
        let terminating = || answer(403, serde_json::json!([{"reason": "NamespaceTerminating"}]));
        let failed = || answer(500, serde_json::json!([]));
        let away = || kube::Error::Service("refused".into());
        let many = |error: &dyn Fn() -> kube::Error, count: u32| (0..count).map(|_| error()).collect::<Vec<_>>();
        for (what, denials, errors, is_final) in [
            ("denied at first", 0, many(&denied, MAX_DENIALS - 1), false),
            ("denied for a minute", 0, many(&denied, MAX_DENIALS), true),
            ("denied after an outage", 0, many(&away, 100).into_iter().chain([denied()]).collect(), false),
            ("denied as the event before", MAX_DENIALS, many(&denied, 1), true),
            ("in a namespace that is being deleted", 0, vec![terminating()], true),
            ("refused", 0, vec![answer(422, serde_json::json!([]))], true),
            ("asked to wait", 0, many(&|| answer(429, serde_json::json!([])), 100), false),
            ("failed at first", 0, many(&failed, MAX_ERRORS - 1), false),
            ("failed again and again", 0, many(&failed, MAX_ERRORS), true),
        ] {
            let mut answers = Answers { denials, errors: 0 };
            let outcomes: Vec<_> = errors.iter().map(|error| answers.is_final(error)).collect();
            assert_eq!(outcomes.last(), Some(&is_final), "{what}");
            assert!(!outcomes[..outcomes.len() - 1].contains(&true), "{what}: {outcomes:?}");
        }
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = shortened(&"ä".repeat(800));
        assert!(note.len() <= MAX_NOTE && note.ends_with("ä…"));
    }

    #[test]
    fn two_messages_of_one_reason_are_two_events() {
        assert_ne!(action("agent", "one"), action("agent", "other"));
        assert_eq!(action("agent", "one"), action("agent", "one"));
    }
}
