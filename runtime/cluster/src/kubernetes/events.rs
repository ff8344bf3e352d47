//! Events on pods: at most so many, and equal ones counted instead of repeated.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::core::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::answered;
use super::mirror::Mirror;
use super::outbox::PodEvent;
use super::trouble::explain;

/// Who says it.
pub(crate) const CONTROLLER: &str = "qosm";
/// The pause after an event that the API server did not take for a reason that passes; doubled up to the next.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What an API server answers with an error of its own is tried no more often.
const MOST_ATTEMPTS: u32 = 5;
/// What is written, for people.
const WHAT: &str = "events on pods";
/// Kubernetes takes no longer note.
const LONGEST_NOTE: usize = 1024;

/// Publishes events for as long as somebody sends some.
pub(super) async fn run(client: Client, node: &str, mirror: &Mirror, mut events: mpsc::Receiver<PodEvent>) {
    let reporter = Reporter { controller: CONTROLLER.into(), instance: Some(node.to_owned()) };
    let recorder = Recorder::new(client, reporter);
    let mut budget = Budget::default();
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
        let (mut pause, mut attempts) = (FIRST_PAUSE, 0);
        let published = loop {
            attempts += 1;
            match publish(&recorder, &regarding, event.is_warning, &event.reason, &event.message, &event.source).await {
                Ok(()) => break Ok(()),
                Err(error) if is_final(&error, attempts) => break Err(error),
                Err(error) => {
                    tracing::warn!(
                        pod = event.name,
                        reason = event.reason,
                        error = explain(&error),
                        "event not published"
                    );
                    mirror.written(WHAT, Err(explain(&error)));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        match published {
            Ok(()) => mirror.written(WHAT, Ok(())),
            Err(error) => {
                tracing::warn!(pod = event.name, reason = event.reason, error = explain(&error), "event given up");
                // A namespace that is being deleted takes no events either, with that cause; then nothing is wrong here.
                let lacks_right = |answer: &Status| {
                    answer.code == 403 && answer.details.as_ref().is_none_or(|details| details.causes.is_empty())
                };
                let is_ours = matches!(&error, kube::Error::Api(answer) if lacks_right(answer));
                mirror.written(WHAT, if is_ours { Err(explain(&error)) } else { Ok(()) });
            }
        }
    }
}

/// Whether an event is given up: the API server refuses it, or breaks on it again and again; the others wait behind it.
fn is_final(error: &kube::Error, attempts: u32) -> bool {
    match error {
        kube::Error::Api(answer) if matches!(answer.code, 401 | 429) => false,
        kube::Error::Api(answer) => answer.code < 500 || attempts >= MOST_ATTEMPTS,
        _ => false,
    }
}

/// Publishes one event.
///
/// # Errors
///
/// The API server does not answer, or refuses.
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

/// The recorder counts an event as a repetition when everything but the note is the same; so what differs in the note has to
/// differ here, or the second message would be lost in the count of the first.
fn action(source: &str, message: &str) -> String {
    let digest = Sha256::digest(format!("{source}: {message}"));
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("qosm-{short}")
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST_NOTE {
        return message.to_owned();
    }
    let mut end = LONGEST_NOTE - '…'.len_utf8();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", message.get(..end).unwrap_or_default())
}

/// A bucket of tokens a pod, as Kubernetes' own components have it, and two for the node: what goes well does not use up what
/// warnings need.
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
    /// Takes a token, if there is one: `burst` at once, then one each `every`.
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
    const POD_EVERY: Duration = Duration::from_secs(300);
    const NODE_BURST: f64 = 100.0;
    const NODE_EVERY: Duration = Duration::from_secs(1);

    fn take(&mut self, event: &PodEvent, now: Instant) -> bool {
        // A full bucket is as good as none.
        self.pods.retain(|_, bucket| bucket.filled(Self::POD_BURST, Self::POD_EVERY, now) < Self::POD_BURST);
        let full = |tokens| Bucket { tokens, at: now };
        let of_pod = self.pods.entry(event.uid.clone()).or_insert_with(|| full(Self::POD_BURST));
        let of_node = if event.is_warning { &mut self.warnings } else { &mut self.news };
        let of_node = of_node.get_or_insert_with(|| full(Self::NODE_BURST));
        of_pod.take(Self::POD_BURST, Self::POD_EVERY, now) && of_node.take(Self::NODE_BURST, Self::NODE_EVERY, now)
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
    fn a_pod_that_is_told_too_much_does_not_silence_another() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let (noisy, quiet) = (event("noisy", true), event("quiet", true));
        let told = (0..40).filter(|_| budget.take(&noisy, now)).count();
        assert_eq!(told, 25);
        assert!(budget.take(&quiet, now));
        assert!(!budget.take(&noisy, now + Duration::from_secs(299)));
        assert!(budget.take(&noisy, now + Duration::from_secs(601)));
    }

    #[test]
    fn a_node_full_of_news_is_bounded_as_well_and_still_warns() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let told = (0..200).filter(|pod| budget.take(&event(&pod.to_string(), false), now)).count();
        assert_eq!(told, 100);
        assert!(budget.take(&event("later", false), now + Duration::from_secs(2)));
        assert!(budget.take(&event("ill", true), now));
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = shortened(&"ä".repeat(800));
        assert!(note.len() <= LONGEST_NOTE && note.ends_with("ä…"));
    }

    #[test]
    fn two_messages_of_one_reason_are_two_events() {
        assert_ne!(action("agent", "one"), action("agent", "other"));
        assert_eq!(action("agent", "one"), action("agent", "one"));
    }
}
