//! Guard rails of evictions: which pods are never evicted, and how many evictions are allowed.

use qosm_model::lease::Timestamp;
use qosm_model::pod::Pod;

use super::Phase;
use crate::config::GuardRails;

/// The lowest priority of pods that keep a cluster going, `system-cluster-critical`.
const SYSTEM_PRIORITY: i32 = 2_000_000_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Why a pod may not be evicted, with the setting that would allow it if there is one.
pub(super) fn forbidden(pod: &Pod, rails: &GuardRails) -> Option<String> {
    let own = &rails.evictions;
    let namespace = &pod.namespace;
    if rails.protected_namespaces.contains(namespace) {
        return Some(format!("namespace {namespace} is protected; take it out of `guardRails.protectedNamespaces`"));
    }
    if own.protected_namespaces.contains(namespace) {
        return Some(format!(
            "no pod of namespace {namespace} is evicted; take it out of `guardRails.evictions.protectedNamespaces`"
        ));
    }
    if pod.is_static() || pod.lifecycle.mirror {
        return Some("the kubelet runs it from a manifest of its own; such pods are never evicted".to_owned());
    }
    if let Some(priority) = pod.priority.filter(|priority| *priority >= SYSTEM_PRIORITY) {
        return Some(format!("its priority {priority} is that of system pods; those are never evicted"));
    }
    let is_daemon = pod.lifecycle.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
    if is_daemon && !own.daemon_sets {
        return Some("it is a DaemonSet's, and would come back here; set `guardRails.evictions.daemonSets`".to_owned());
    }
    None
}

/// Times of the evictions that were let through within the last hour, by the wall clock, since that goes on over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget(pub(super) Vec<Timestamp>);

impl Budget {
    /// Why no further eviction is allowed, and whether the request waits (queued) or is refused (barred); `None` if one is allowed.
    pub(super) fn exhausted(&mut self, rails: &GuardRails, now: Timestamp) -> Option<(Phase, String)> {
        // A clock that was set back must neither forbid evictions for longer than an hour nor forget them.
        self.0.iter_mut().for_each(|at| at.0 = at.0.min(now.0));
        self.0.retain(|at| now.0.saturating_sub(at.0) < HOUR);
        let within = |span: i64| self.0.iter().filter(|at| now.0.saturating_sub(at.0) < span).count();
        let bounds = [("minute", "perMinute", MINUTE, rails.evictions.per_minute)];
        let bounds = bounds.into_iter().chain([("hour", "perHour", HOUR, rails.evictions.per_hour)]);
        let exhausted =
            bounds.into_iter().find(|(.., span, most)| u32::try_from(within(*span)).unwrap_or(u32::MAX) >= *most);
        exhausted.map(|(span, field, _, most)| match most {
            0 => (Phase::Barred, format!("this node evicts no pods (`guardRails.evictions.{field}` is 0)")),
            _ => {
                let why = format!("this node evicts at most {most} pods a {span} (`guardRails.evictions.{field}`)");
                (Phase::Queued, format!("{why}; it waits for its turn"))
            }
        })
    }

    pub(super) fn spend(&mut self, now: Timestamp) {
        self.0.push(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EvictionRails;

    fn pod(change: impl FnOnce(&mut Pod)) -> Pod {
        let read = qosm_cluster::parse_objects(
            "{apiVersion: v1, kind: Pod, metadata: {name: job, namespace: batch}, spec: {containers: [{name: app, image: i}]}}",
            "test",
        );
        let mut pod = read.pods.into_iter().next().unwrap();
        change(&mut pod);
        pod
    }

    fn owned(kind: &str) -> Pod {
        use qosm_model::pod::PodOwner;
        pod(|pod| pod.lifecycle.owner = Some(PodOwner { kind: kind.to_owned(), name: "x".to_owned() }))
    }

    #[test]
    fn pods_that_must_stay_are_never_evicted() {
        let rails = GuardRails {
            protected_namespaces: ["kube-system".to_owned()].into(),
            evictions: EvictionRails { protected_namespaces: ["web".to_owned()].into(), ..EvictionRails::default() },
            ..GuardRails::default()
        };
        let source = "kubernetes.io/config.source".to_owned();
        for (what, pod, part) in [
            ("a batch job", pod(|_| ()), None),
            ("of a Job", owned("Job"), None),
            ("of a DaemonSet", owned("DaemonSet"), Some("guardRails.evictions.daemonSets")),
            ("protected", pod(|pod| pod.namespace = "kube-system".into()), Some("guardRails.protectedNamespaces")),
            ("kept here", pod(|pod| pod.namespace = "web".into()), Some("guardRails.evictions.protectedNamespaces")),
            ("static", pod(|pod| drop(pod.annotations.insert(source, "file".into()))), Some("never evicted")),
            ("a mirror", pod(|pod| pod.lifecycle.mirror = true), Some("never evicted")),
            ("critical", pod(|pod| pod.priority = Some(SYSTEM_PRIORITY)), Some("2000000000")),
            ("highest of users", pod(|pod| pod.priority = Some(1_000_000_000)), None),
        ] {
            let why = forbidden(&pod, &rails);
            assert_eq!(why.is_some(), part.is_some(), "{what}: {why:?}");
            assert!(why.unwrap_or_default().contains(part.unwrap_or_default()), "{what}");
        }
        let daemons = EvictionRails { daemon_sets: true, ..EvictionRails::default() };
        let rails = GuardRails { evictions: daemons, ..GuardRails::default() };
        assert_eq!(forbidden(&owned("DaemonSet"), &rails), None);
    }

    #[test]
    fn so_many_a_minute_and_so_many_an_hour() {
        let own = EvictionRails { per_minute: 2, per_hour: 3, ..EvictionRails::default() };
        let rails = GuardRails { evictions: own, ..GuardRails::default() };
        let mut budget = Budget::default();
        let mut taken = Vec::new();
        for second in [0, 1, 2, 59, 60, 61, 3_599, 3_600, 3_601] {
            let now = Timestamp(1_000_000_000 + second * 1000);
            let refused = budget.exhausted(&rails, now);
            if refused.is_none() {
                budget.spend(now);
                taken.push(second);
            }
            if second == 2 {
                assert!(refused.unwrap().1.contains("guardRails.evictions.perMinute"));
            } else if second == 61 {
                assert!(refused.unwrap().1.contains("guardRails.evictions.perHour"));
            }
        }
        assert_eq!(taken, [0, 1, 60, 3_600, 3_601]);
    }

    #[test]
    fn a_clock_that_is_set_back_forbids_for_an_hour_at_most() {
        let own = EvictionRails { per_minute: 1, per_hour: 1, ..EvictionRails::default() };
        let rails = GuardRails { evictions: own, ..GuardRails::default() };
        let mut budget = Budget(vec![Timestamp(9_000_000_000)]);
        let now = Timestamp(1_000_000_000);
        assert!(budget.exhausted(&rails, now).is_some(), "it is not forgotten");
        assert!(budget.exhausted(&rails, Timestamp(now.0 + HOUR)).is_none());
        let none = EvictionRails { per_minute: 0, ..EvictionRails::default() };
        let rails = GuardRails { evictions: none, ..GuardRails::default() };
        let exhausted = Budget::default().exhausted(&rails, now).map(|(phase, _)| phase);
        assert_eq!(exhausted, Some(Phase::Barred), "0 is none at all");
    }
}
