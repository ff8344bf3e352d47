//! A pod's owner, creation, deletion, grace period and restart policy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use qosm_model::pod::{PodLifecycle, PodOwner, RestartPolicy};

use super::resources::Reader;

/// Times of the pod's creation and deletion, and its grace periods.
#[derive(Default)]
pub(super) struct Times {
    pub(super) created: Option<Time>,
    pub(super) deleted: Option<Time>,
    pub(super) deletion_grace_seconds: Option<i64>,
    pub(super) termination_grace_seconds: Option<i64>,
}

/// Reads the lifecycle. Unusable fields are reported and count as not set; an unknown restart policy counts as Always.
pub(super) fn read(
    owners: &[OwnerReference],
    mirror: bool,
    times: Times,
    restart_policy: Option<&str>,
    reader: &mut Reader<'_>,
) -> PodLifecycle {
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first());
    let deleting = times.deleted.is_some();
    let grace = match (deleting, times.deletion_grace_seconds) {
        (true, Some(seconds)) => ("metadata.deletionGracePeriodSeconds", Some(seconds)),
        _ => ("spec.terminationGracePeriodSeconds", times.termination_grace_seconds),
    };
    let grace_period = grace.1.and_then(|seconds| {
        let fits = u32::try_from(seconds).ok();
        if fits.is_none() {
            let message = format!("{seconds} is no number of seconds; it counts as not said, write 0 to {}", u32::MAX);
            reader.report(grace.0, message);
        }
        fits
    });
    let restart_policy = restart_policy.filter(|word| !word.is_empty()).map_or(RestartPolicy::default(), |word| {
        RestartPolicy::ALL.into_iter().find(|known| known.as_str() == word).unwrap_or_else(|| {
            let message =
                format!("{} is none of Always, OnFailure, Never; it counts as Always", serde_json::Value::from(word));
            reader.report("spec.restartPolicy", message);
            RestartPolicy::Always
        })
    });
    PodLifecycle {
        created: times.created.map(|Time(at)| at.as_second()),
        deleting,
        grace_period,
        mirror,
        owner: owner.map(|owner| PodOwner { kind: owner.kind.clone(), name: owner.name.clone() }),
        restart_policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference { kind: kind.into(), name: kind.to_lowercase(), controller, ..OwnerReference::default() }
    }

    fn read_with<T>(with: impl FnOnce(&mut Reader<'_>) -> T) -> (T, Vec<String>) {
        let mut reader = Reader { object: "pod default/web", origin: "web.yaml", problems: Vec::new() };
        let read = with(&mut reader);
        (read, reader.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_controller_is_the_owner_and_the_first_where_none_is_marked() {
        for (owners, expected) in [
            (vec![], None),
            (vec![owner("Foo", None), owner("ReplicaSet", Some(true))], Some("ReplicaSet")),
            (vec![owner("Foo", Some(false)), owner("Bar", None)], Some("Foo")),
        ] {
            let (read, _) = read_with(|reader| read(&owners, false, Times::default(), None, reader));
            assert_eq!(read.owner.as_ref().map(|owner| owner.kind.as_str()), expected);
        }
    }

    #[test]
    fn a_pod_that_is_being_deleted_has_the_time_it_was_given() {
        let at = |seconds| Some(Time(k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap()));
        for (deleted, deletion, termination, expected) in [
            (None, None, None, (false, None)),
            (None, Some(5), Some(30), (false, Some(30))),
            (at(90), Some(5), Some(30), (true, Some(5))),
            (at(90), None, Some(30), (true, Some(30))),
            (at(90), Some(0), None, (true, Some(0))),
        ] {
            let times = Times {
                created: at(60),
                deleted,
                deletion_grace_seconds: deletion,
                termination_grace_seconds: termination,
            };
            let (read, problems) = read_with(|reader| read(&[], false, times, Some("Never"), reader));
            assert_eq!((read.deleting, read.grace_period), expected);
            assert_eq!((read.created, read.restart_policy), (Some(60), RestartPolicy::Never));
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named_and_counts_as_not_said() {
        let times = Times { termination_grace_seconds: Some(-1), ..Times::default() };
        let (read, problems) = read_with(|reader| read(&[], true, times, Some("always"), reader));
        assert_eq!((read.grace_period, read.restart_policy, read.mirror), (None, RestartPolicy::Always, true));
        assert_eq!(
            problems,
            [
                "pod default/web: spec.terminationGracePeriodSeconds: -1 is no number of seconds; it counts as not said, write 0 to 4294967295 (in web.yaml)",
                "pod default/web: spec.restartPolicy: \"always\" is none of Always, OnFailure, Never; it counts as Always (in web.yaml)",
            ]
        );
    }
}
