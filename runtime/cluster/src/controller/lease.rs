//! Leader election by a Lease, as Kubernetes' own controllers do it.
//!
//! A holder counts as alive while its Lease changes, measured by the monotonic clock. The times in a Lease come
//! from clocks that may differ or jump, so they are not compared. The API server's record of the last write
//! shows how far its clock differs from this process's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::Instant;

use super::CONTROLLER;
use crate::kubernetes::explain;

/// The Lease, and the identity of this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Holder identity, unique among the controllers.
    pub identity: String,
}

/// A Lease unchanged for this long is free.
const DURATION: Duration = Duration::from_secs(15);
/// The holder stops acting this long after its last renewal: before another controller begins.
const ACTS_WITHIN: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

/// Whether this controller acts, and the API server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Leadership {
    /// When this controller stops acting without a renewal; `None` if it does not hold the Lease.
    until: Option<Instant>,
    /// How far the API server's clock is ahead of this process's.
    pub(super) server_ahead: SignedDuration,
}

impl Leadership {
    /// The leadership of the only controller: it never ends.
    pub(super) fn of_one() -> Self {
        // A century: longer than any process runs.
        let until = Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600);
        Self { until: Some(until), server_ahead: SignedDuration::ZERO }
    }

    pub(super) fn acts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// The last seen version of the Lease, and when it was first seen.
#[derive(Clone, Debug, PartialEq)]
struct Observed {
    version: Option<String>,
    since: Duration,
}

/// The next step for a Lease.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Another controller holds the Lease.
    Wait,
    /// Write the Lease with this specification.
    Write(LeaseSpec),
}

/// Acquires the Lease and renews it, forever.
pub(super) async fn hold(client: Client, lease: LeaseName, told: watch::Sender<Leadership>) {
    let leases: Api<Lease> = Api::namespaced(client, &lease.namespace);
    let begun = Instant::now();
    let mut observed = Observed { version: None, since: Duration::ZERO };
    let mut told_error = false;
    loop {
        let asked = Instant::now();
        match tokio::time::timeout(ANSWERED_WITHIN, round(&leases, &lease, &mut observed, asked - begun)).await {
            Ok(Ok(held)) => {
                told_error = false;
                told.send_if_modified(|before| lead(before, held, asked, &lease));
            }
            Ok(Err(error)) => {
                if !std::mem::replace(&mut told_error, true) {
                    tracing::warn!(lease = lease.name, error = explain(&error), "lease not held; tried again");
                }
            }
            Err(_) => tracing::debug!(lease = lease.name, "no answer in time"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Updates the leadership after a round. Always returns `true`, because each renewal changes `until`.
fn lead(leadership: &mut Leadership, held: Option<SignedDuration>, asked: Instant, lease: &LeaseName) -> bool {
    let did = leadership.acts();
    match held {
        Some(ahead) => *leadership = Leadership { until: Some(asked + ACTS_WITHIN), server_ahead: ahead },
        None => leadership.until = None,
    }
    if did != held.is_some() {
        let who = lease.identity.as_str();
        tracing::info!(lease = lease.name, identity = who, acts = held.is_some(), "lease changed hands");
    }
    true
}

/// Reads the Lease, and writes it if it is free or held by this controller. Returns how far the API server's clock is ahead, or
/// `None` if this controller does not hold the Lease.
async fn round(
    leases: &Api<Lease>,
    lease: &LeaseName,
    observed: &mut Observed,
    running: Duration,
) -> Result<Option<SignedDuration>, kube::Error> {
    let found = leases.get_opt(&lease.name).await?;
    let version = found.as_ref().and_then(|found| found.metadata.resource_version.clone());
    if observed.version != version {
        *observed = Observed { version, since: running };
    }
    let own = now();
    let spec = found.as_ref().and_then(|found| found.spec.as_ref());
    let unchanged = running.saturating_sub(observed.since);
    let Step::Write(spec) = step(spec, &lease.identity, unchanged, own) else { return Ok(None) };
    let metadata = found.map_or_else(
        || ObjectMeta { name: Some(lease.name.clone()), ..ObjectMeta::default() },
        // With the version that was read: if two controllers take the Lease at once, the API server refuses one.
        |found| ObjectMeta { managed_fields: None, ..found.metadata },
    );
    let is_new = metadata.resource_version.is_none();
    let mine = Lease { metadata, spec: Some(spec) };
    let params = PostParams { field_manager: Some(CONTROLLER.into()), ..PostParams::default() };
    let written =
        if is_new { leases.create(&params, &mine).await } else { leases.replace(&lease.name, &params, &mine).await };
    match written {
        Ok(written) => {
            *observed = Observed { version: written.metadata.resource_version.clone(), since: running };
            Ok(Some(ahead(&written, own)))
        }
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Releases the Lease, so that another controller need not wait for its end.
pub(super) async fn release(client: Client, lease: &LeaseName) {
    let leases: Api<Lease> = Api::namespaced(client, &lease.namespace);
    let released = tokio::time::timeout(ANSWERED_WITHIN, async {
        let Some(mut found) = leases.get_opt(&lease.name).await? else { return Ok(()) };
        let Some(spec) = &mut found.spec else { return Ok(()) };
        if spec.holder_identity.as_ref() != Some(&lease.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        found.metadata.managed_fields = None;
        leases.replace(&lease.name, &PostParams::default(), &found).await.map(drop)
    });
    match released.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::info!(error = explain(&error), "lease not released; another controller waits until it expires")
        }
        Err(_) => tracing::info!("lease not released in time; another controller waits until it expires"),
    }
}

fn step(spec: Option<&LeaseSpec>, identity: &str, unchanged: Duration, now: Timestamp) -> Step {
    let seconds = i32::try_from(DURATION.as_secs()).unwrap_or(i32::MAX);
    let fresh = |acquired, transitions| LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: acquired,
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    let Some(spec) = spec else { return Step::Write(fresh(Some(MicroTime(now)), 0)) };
    let transitions = spec.lease_transitions.unwrap_or(0);
    match spec.holder_identity.as_deref() {
        Some(holder) if holder == identity => Step::Write(fresh(spec.acquire_time.clone(), transitions)),
        Some(holder) if !holder.is_empty() => {
            let said = u64::try_from(spec.lease_duration_seconds.unwrap_or(seconds)).unwrap_or(DURATION.as_secs());
            if unchanged <= Duration::from_secs(said) {
                return Step::Wait;
            }
            Step::Write(fresh(Some(MicroTime(now)), transitions.saturating_add(1)))
        }
        _ => Step::Write(fresh(Some(MicroTime(now)), transitions.saturating_add(1))),
    }
}

/// How far the API server's clock is ahead: it records in whole seconds when it accepted this controller's write. Differences
/// below 2 s count as none.
fn ahead(written: &Lease, own: Timestamp) -> SignedDuration {
    let entries = written.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry.manager.as_deref() == Some(CONTROLLER));
    let taken = ours.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max();
    let ahead = taken.map_or(SignedDuration::ZERO, |taken| taken.duration_since(own));
    if ahead.abs() < SignedDuration::from_secs(2) { SignedDuration::ZERO } else { ahead }
}

#[expect(clippy::disallowed_methods, reason = "a Lease says when it was renewed")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};

    fn held_by(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            // The holder's clock is a year ahead.
            renew_time: Some(MicroTime(Timestamp::from_second(2_000_000_000).unwrap())),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn one_of_two_holds_the_lease_until_it_did_not_change_for_its_duration() {
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        let free = LeaseSpec { lease_transitions: Some(3), ..LeaseSpec::default() };
        for (spec, unchanged, takes, transitions) in [
            (None, 0, true, 0),
            (Some(free), 0, true, 4),
            (Some(held_by("", 15)), 0, true, 4),
            (Some(held_by("me", 15)), 14, true, 3),
            (Some(held_by("other", 15)), 0, false, 0),
            (Some(held_by("other", 15)), 15, false, 0),
            (Some(held_by("other", 15)), 16, true, 4),
            (Some(held_by("other", 60)), 16, false, 0),
            (Some(held_by("other", -1)), 14, false, 0),
            (Some(held_by("other", -1)), 16, true, 4),
        ] {
            let step = step(spec.as_ref(), "me", Duration::from_secs(unchanged), now);
            match step {
                Step::Wait => assert!(!takes, "{spec:?} after {unchanged} s"),
                Step::Write(written) => {
                    assert!(takes, "{spec:?} after {unchanged} s");
                    assert_eq!(written.holder_identity.as_deref(), Some("me"));
                    assert_eq!(written.lease_transitions, Some(transitions), "{spec:?}");
                }
            }
        }
    }

    #[test]
    fn who_cannot_renew_stops_before_another_begins() {
        assert!(ACTS_WITHIN + ANSWERED_WITHIN < DURATION);
    }

    #[test]
    fn the_servers_clock_is_read_off_its_record_of_our_write() {
        let own = Timestamp::from_second(1_000_000).unwrap();
        let entry = |manager: &str, second| ManagedFieldsEntry {
            manager: Some(manager.into()),
            time: Some(Time(Timestamp::from_second(second).unwrap())),
            ..ManagedFieldsEntry::default()
        };
        let lease = |second| Lease {
            metadata: ObjectMeta {
                managed_fields: Some(vec![entry("another", 9_999_999), entry(CONTROLLER, second)]),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        assert_eq!(ahead(&lease(1_000_400), own), SignedDuration::from_secs(400));
        assert_eq!(ahead(&lease(999_000), own), SignedDuration::from_secs(-1000));
        // Whole seconds are rounded down.
        assert_eq!(ahead(&lease(999_999), own), SignedDuration::ZERO);
        assert_eq!(ahead(&Lease::default(), own), SignedDuration::ZERO);
    }
}
