//! Decides what each container and pod holds, from the observations.

use qosm_sdk::{ContainerKind, scale};

use crate::bandwidth::{base_quota, burst, ceiling};
use crate::limiter::{Bucket, Terms, usage_percent};
use crate::pods::{Asked, Container, Decision, Place, Pod, Pods, Row};
use crate::pool::{NodeState, Pool};
use crate::protocol::{Config, PodConfig, Profile};
use crate::saved_state::Tokens;
use crate::share_pool::{Cut, Raise, collect, share};
use crate::step::{Situation, Why};
use crate::{koordinator, responsive};

const USEC: u64 = 1_000_000;

/// The inputs of an evaluation that apply to all containers.
pub(crate) struct Round<'a> {
    /// The policy's configuration.
    pub(crate) config: &'a Config,
    /// The share pool.
    pub(crate) pool: Pool,
    /// The policy's clock.
    pub(crate) now_usec: u64,
    /// Whether the loop steps. Between steps, only bounds, disabled mechanisms, bursts and alarms are handled.
    pub(crate) steps: bool,
}

/// The containers that need more quota, and those above their base. Kept between evaluations to avoid allocations at each tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    raises: Vec<Raise<Place>>,
    cuts: Vec<Cut<Place>>,
    /// Total by which quotas were lowered in this evaluation, in millionths of a CPU.
    lowered: u64,
    /// Total of the raises since the last step, in millionths of a CPU.
    given: u64,
}

/// Decides for all containers; each decision is stored in its container.
pub(crate) fn decide(round: &Round, pods: &mut Pods, claims: &mut Claims, restored: &mut Vec<Tokens>) {
    claims.raises.clear();
    claims.cuts.clear();
    claims.lowered = 0;
    if round.steps {
        claims.given = 0;
    }
    for (index, pod) in pods.all.iter_mut().enumerate() {
        let context = pod.config.map(|config| PodContext {
            node: round.pool.state(config.share_pool_threshold_percent.into()),
            bound: bound_by_pod(pod),
            config,
        });
        for (number, container) in pod.containers.iter_mut().enumerate() {
            if round.steps {
                container.asked = None;
            }
            container.decision = match &context {
                Some(context) if container.is_running && container.limit_milli > 0 => {
                    let place = Place { pod: index, container: number };
                    decide_one(round, context, place, container, claims, restored)
                }
                _ => Decision::Release,
            };
        }
    }
    collect(&claims.cuts, &round.pool, claims.lowered, |place, less| {
        if let Some(container) = pods.container_mut(place) {
            container.history.cut();
            container.decision.change_quota(|quota| (quota.saturating_sub(less), Why::Overload));
        }
    });
    let (raises, given) = (&claims.raises, &mut claims.given);
    share(raises, &round.pool, given, |place, more| {
        if let Some(container) = pods.container_mut(place) {
            container.history.raised();
            let percent = container.unanswered().map_or(0, |activity| activity.throttled_percent());
            let why = if percent > 0 { Why::Throttled(percent) } else { Why::UsedUp };
            if !round.steps {
                container.answered = container.activity;
            }
            container.decision.change_quota(|quota| (quota.saturating_add(more), why));
        }
    });
    if round.steps {
        for container in pods.all.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.unmet = unmet(container, &round.pool);
        }
    }
}

/// Why the quota of a throttled container was not raised; `None` if it was raised, or the container is not throttled.
fn unmet(container: &Container, pool: &Pool) -> Option<String> {
    let asked = container.asked?;
    let Decision::Act { quota: Some((quota, _)), .. } = container.decision else { return None };
    if asked.throttled_percent == 0 || quota > asked.current {
        return None;
    }
    let why = match pool.used_percent() {
        _ if asked.refused => "its burst allowance of cfsQuotaBurstPeriodSeconds is used up".to_owned(),
        _ if asked.current >= asked.ceil => {
            "it is at its ceiling, that of cfsQuotaBurstPercent or its pod's".to_owned()
        }
        None => "how much of the shared CPUs is in use is not known yet".to_owned(),
        Some(used) => {
            format!("shared CPUs are used to {used} %, and sharePoolThresholdPercent is {}", asked.threshold_percent)
        }
    };
    Some(format!("throttled in {} % of the periods and not raised: {why}", asked.throttled_percent))
}

/// The inputs that all containers of a pod share.
struct PodContext {
    config: PodConfig,
    node: NodeState,
    /// Quota of the pod, which no container may exceed; `None` = no bound.
    bound: Option<Row>,
}

fn decide_one(
    round: &Round,
    context: &PodContext,
    place: Place,
    container: &mut Container,
    claims: &mut Claims,
    restored: &mut Vec<Tokens>,
) -> Decision {
    let config = &context.config;
    let refused =
        if round.steps { is_refused(round, config, container, restored) } else { was_refused(config, container) };
    let Some(row) = container.row else { return Decision::Leave };
    let Some((current, baseline)) = row.limited() else { return Decision::Release };
    let burst = if config.policy.has_burst() {
        burst(container.limit_milli, config.cpu_burst_percent, row.period_usec)
    } else {
        0
    };
    if !config.policy.has_loop() {
        return Decision::Act { quota: None, burst };
    }
    let given = base_quota(container.limit_milli, row.period_usec);
    // The base is never below the baseline: systemd rounds quotas up, and a kubelet that is about to shrink a quota has not done so yet.
    let base = given.max(baseline);
    let room =
        context.bound.and_then(|bound| bound.quota.map(|quota| scale(quota, row.period_usec, bound.period_usec)));
    let ceil = ceiling(given, config.cfs_quota_burst_percent).min(room.unwrap_or(u64::MAX)).max(base);
    let threshold_percent = u64::from(config.share_pool_threshold_percent);
    let situation = Situation {
        current,
        base,
        ceil,
        period_usec: row.period_usec,
        activity: container.unanswered(),
        refused,
        node: context.node,
    };
    if round.steps {
        let throttled_percent = situation.activity.map_or(0, |activity| activity.throttled_percent());
        container.asked = Some(Asked { current, ceil, refused, throttled_percent, threshold_percent });
    }
    let quota = match round.config.profile {
        Profile::Koordinator if round.steps => koordinator::step(&situation),
        Profile::Responsive if round.steps => {
            let proposal = responsive::propose(&mut container.history, &situation, round.config);
            // An alarm is newer than the counters: the throttling does not show in them yet.
            let proposal = if proposal.raise == 0 && container.is_alarmed {
                responsive::alarm(&mut container.history, &situation, round.config)
            } else {
                proposal
            };
            offer(claims, &proposal, &situation, place, threshold_percent);
            (proposal.quota, proposal.why)
        }
        Profile::Responsive if container.is_alarmed => {
            let proposal = responsive::alarm(&mut container.history, &situation, round.config);
            raise(claims, &proposal, &situation, place, threshold_percent);
            (proposal.quota, proposal.why)
        }
        Profile::Koordinator | Profile::Responsive => (situation.bounded(current), Why::Bounds),
    };
    Decision::Act { quota: Some(quota), burst }
}

/// Adds the container to those that need more quota and to those that could give some up.
fn offer(
    claims: &mut Claims,
    proposal: &responsive::Proposal,
    situation: &Situation,
    place: Place,
    threshold_percent: u64,
) {
    let period_usec = situation.period_usec;
    let lowered = situation.current.saturating_sub(proposal.quota);
    claims.lowered = claims.lowered.saturating_add(scale(lowered, USEC, period_usec));
    raise(claims, proposal, situation, place, threshold_percent);
    if proposal.quota > situation.base {
        let (base, activity) = (situation.base, situation.activity);
        claims.cuts.push(Cut { id: place, quota: proposal.quota, base, period_usec, activity, threshold_percent });
    }
}

/// Adds the container to those that need more quota.
fn raise(
    claims: &mut Claims,
    proposal: &responsive::Proposal,
    situation: &Situation,
    place: Place,
    threshold_percent: u64,
) {
    if proposal.raise > 0 {
        let (wanted, period_usec) = (proposal.raise, situation.period_usec);
        let throttled_usec = situation.activity.map_or(0, |activity| activity.throttled_usec);
        claims.raises.push(Raise { id: place, wanted, period_usec, throttled_usec, threshold_percent });
    }
}

/// Whether the container had used up its tokens when they were last settled. With a limiter but no tokens yet, it counts as refused.
fn was_refused(config: &PodConfig, container: &Container) -> bool {
    config.cfs_quota_burst_period_seconds >= 0 && container.bucket.is_none_or(|bucket| !bucket.allows())
}

/// Settles the container's tokens, if it has any, and returns whether it has to come down.
///
/// With the profile `koordinator`, tokens are settled even while the loop is off, as Koordinator's agent does; with `responsive`, only
/// while the loop is on.
fn is_refused(round: &Round, config: &PodConfig, container: &mut Container, restored: &mut Vec<Tokens>) -> bool {
    let Ok(period_secs) = u64::try_from(config.cfs_quota_burst_period_seconds) else { return false };
    let Some(percent) = u64::try_from(config.cfs_quota_burst_percent).ok().filter(|percent| *percent >= 100) else {
        return true;
    };
    if !config.policy.has_loop() && round.config.profile == Profile::Responsive {
        return false;
    }
    let (terms, now) = (Terms { period_secs, percent }, round.now_usec);
    if container.bucket.is_some_and(|bucket| bucket.is_stale(terms, now)) {
        container.bucket = Some(Bucket::new(terms, now));
    }
    let key = container.key;
    let bucket = container.bucket.get_or_insert_with(|| {
        let fresh = Bucket::new(terms, now);
        let saved = restored.iter().position(|saved| saved.key == key).map(|index| restored.swap_remove(index));
        let saved = saved.filter(|saved| saved.capacity == fresh.capacity);
        Bucket { tokens: saved.map_or(fresh.tokens, |saved| saved.tokens), ..fresh }
    });
    let usage = container
        .activity
        .and_then(|activity| usage_percent(activity.usage_usec, activity.window_usec, container.limit_milli));
    bucket.settle(usage, now);
    !bucket.allows()
}

/// The pod's row, if the pod has a quota that this policy does not raise. No container gets more than that quota then.
fn bound_by_pod(pod: &Pod) -> Option<Row> {
    pod.row.filter(|row| row.quota.is_some() && !is_raisable(pod))
}

/// Whether the pod's quota may be raised: it follows from a limit of the pod itself, or all containers that may run are limited.
fn is_raisable(pod: &Pod) -> bool {
    pod.row.is_some_and(|row| row.limited().is_some())
        && (pod.limit_milli.is_some()
            || pod.containers.iter().all(|container| {
                let counts = container.kind != ContainerKind::Init || container.is_running;
                let is_lifted = container.row.is_some_and(|row| row.limited().is_none());
                !counts || (container.limit_milli > 0 && !is_lifted)
            }))
}

/// The decision for one knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Leave it as it is, since a quota that matters could not be read.
    Leave,
    /// Hold this value; `None` = hold nothing.
    Hold(Option<u64>),
}

/// The pod's quota and burst, computed from those of its containers. They are recomputed each time, never adjusted by differences, so they
/// cannot drift. The burst of a pod with its own limit is at most that of the limit, since each container may have the pod's limit as its
/// own.
pub(crate) fn decide_pod(pod: &Pod) -> (Wanted, Wanted) {
    let (mut burst, mut is_changed) = (0_u64, false);
    for container in &pod.containers {
        match (container.decision, container.row) {
            (Decision::Leave, _) => return (Wanted::Leave, Wanted::Leave),
            (Decision::Act { quota, burst: own }, Some(row)) => {
                burst = burst.saturating_add(own);
                is_changed |= quota.is_some_and(|(quota, _)| Some(quota) != row.baseline);
            }
            _ => {}
        }
    }
    let of_limit = pod
        .config
        .zip(pod.limit_milli)
        .zip(pod.row)
        .map(|((config, limit), row)| crate::bandwidth::burst(limit, config.cpu_burst_percent, row.period_usec));
    let burst = of_limit.map_or(burst, |most| burst.min(most));
    // Without a quota nothing can be saved up, and the kernel would refuse the first quota below the burst.
    let is_limited = pod.row.is_none_or(|row| row.quota.is_some());
    let burst = Wanted::Hold(Some(burst).filter(|burst| *burst > 0 && is_limited));
    let Some(config) = pod.config.filter(|config| config.policy.has_loop()) else {
        return (Wanted::Hold(None), burst);
    };
    let Some(row) = pod.row else { return (Wanted::Leave, burst) };
    let quota = (is_changed && is_raisable(pod)).then(|| match pod.limit_milli {
        Some(limit) => widened(pod, &config, limit, row.period_usec),
        None => summed(pod, row.period_usec),
    });
    let quota = quota.map(|quota| quota.max(row.baseline.unwrap_or_default()));
    (Wanted::Hold(quota.filter(|quota| Some(*quota) != row.baseline)), burst)
}

/// The sum of the containers' quotas. Containers that do not run count with their base, so that they can start (on cgroup v1 a child may
/// not exceed its parent). For the same reason the sum is never below what a kubelet would give the pod.
fn summed(pod: &Pod, period_usec: u64) -> u64 {
    let sum = pod.containers.iter().fold(scale(pod.overhead_milli, period_usec, 1_000), |sum, container| {
        sum.saturating_add(match (container.decision, container.row) {
            (Decision::Act { quota: Some((quota, _)), .. }, Some(row)) => scale(quota, period_usec, row.period_usec),
            _ if container.kind == ContainerKind::Regular => base_quota(container.limit_milli, period_usec),
            _ => 0,
        })
    });
    sum.max(base_quota(pod.computed_limit_milli, period_usec))
}

/// The pod's own limit, raised by what its containers got above theirs, and capped at the same percentage; plus the overhead, which the
/// kubelet adds to the limit.
fn widened(pod: &Pod, config: &PodConfig, limit_milli: u64, period_usec: u64) -> u64 {
    let base = base_quota(limit_milli, period_usec);
    let wider = pod.containers.iter().fold(base, |sum, container| match (container.decision, container.row) {
        (Decision::Act { quota: Some((quota, _)), .. }, Some(row)) => {
            let more = quota.saturating_sub(base_quota(container.limit_milli, row.period_usec));
            sum.saturating_add(scale(more, period_usec, row.period_usec))
        }
        _ => sum,
    });
    let overhead = scale(pod.overhead_milli, period_usec, 1_000);
    wider.min(ceiling(base, config.cfs_quota_burst_percent)).saturating_add(overhead)
}
