//! Alarms: which triggers are watched for which policies, and which alarms make an evaluation due.

pub(crate) mod line;

use std::collections::BTreeSet;

use qosm_host::knob_table::row;
use qosm_host::{Fired, Host, HostError, Throttleable};
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, KubeQos, Tier};
use qosm_model::unit::Micros;

use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policies::Policies;
use crate::policy::{Health, Policy};
use crate::table::{PodEntry, PodTable};

/// Delay after which a new cgroup is opened: by then its creator has written its limits.
const SETTLES_IN: Micros = Micros(50_000);

/// The triggers that are watched, and the alarms that fired.
#[derive(Debug, Default)]
pub(crate) struct AlarmState {
    /// Alarms since the last step, for recordings.
    pub(crate) received: BTreeSet<Fired>,
    /// When cgroups that have appeared are to be opened, on the monotonic clock; `None` if none has appeared.
    appeared: Option<Micros>,
    /// Pods, cgroups or configuration changed since watches were arranged.
    pub(crate) is_stale: bool,
    /// Whether a policy wanted throttling alarms when polling was arranged.
    has_looks: bool,
    /// Whether a policy held the CPU of the tier BestEffort when watches were arranged.
    holds_batch: bool,
    /// Containers that can be throttled, and the others that run beside them. Kept so that arranging them does not allocate.
    throttleable: Vec<Throttleable>,
    beside: Vec<ContainerId>,
}

impl AlarmState {
    /// Calls `wake` as soon as a trigger fires: then [`Self::next`] returns when to step. `wake` is called on
    /// another thread, and must not block. Without alarms, policies are evaluated only at their intervals.
    ///
    /// # Errors
    ///
    /// [`HostError::Alarms`].
    pub(crate) fn start(&mut self, host: &mut Host, wake: impl Fn() + Send + 'static) -> Result<(), HostError> {
        self.is_stale = true;
        host.start_alarms(wake)
    }

    /// Receives the alarms that fired. Returns when a step is due because of them, on the monotonic clock; `None` if the next tick is early
    /// enough.
    pub(crate) fn next(
        &mut self,
        host: &mut Host,
        policies: &mut Policies,
        pods: &PodTable,
        metrics: &Metrics,
        now: Now,
    ) -> Option<Micros> {
        for fired in host.alarms() {
            match fired.alarm.trigger {
                // The host names the directory; the next observation finds the container.
                Trigger::ContainerStarted => {
                    self.appeared.get_or_insert(Micros(now.monotonic.0.saturating_add(SETTLES_IN.0)));
                }
                _ => self.receive(fired, policies, pods, metrics, now),
            }
        }
        policies.next_alarm().into_iter().chain(self.appeared).min()
    }

    /// Sends an alarm to the policies that asked for it.
    pub(crate) fn receive(
        &mut self,
        fired: Fired,
        policies: &mut Policies,
        pods: &PodTable,
        metrics: &Metrics,
        now: Now,
    ) {
        let alarm = fired.alarm;
        metrics.alarm(&alarm.trigger);
        let pod = match alarm.target {
            None => None,
            // The alarm is about all pods as a whole.
            Some(Target::Node | Target::Tier(_)) => None,
            Some(target) => match pods.of(target) {
                Some(entry) => Some(entry.id),
                // The target is gone.
                None => return,
            },
        };
        if policies.receive(fired, pod, now) {
            self.received.insert(fired);
        }
    }

    /// Begins a step, which also opens the cgroups that have appeared and are due. Returns the alarms since the last step.
    pub(crate) fn begin(&mut self, now: Now) -> BTreeSet<Fired> {
        self.appeared = self.appeared.filter(|due| *due > now.monotonic);
        std::mem::take(&mut self.received)
    }

    /// Sends start alarms for containers whose cgroups have just been opened.
    pub(crate) fn started(&mut self, targets: &[Target], policies: &mut Policies, metrics: &Metrics, now: Now) {
        self.is_stale = true;
        for &target in targets {
            if let Target::Container(_) = target {
                metrics.alarm(&Trigger::ContainerStarted);
                let alarm = Alarm { trigger: Trigger::ContainerStarted, target: Some(target) };
                let fired = Fired { alarm, after_rest: false };
                policies.receive_start(fired, now);
            }
        }
    }

    /// Updates the watches after changes of pods and configuration.
    pub(crate) fn arrange(
        &mut self,
        host: &mut Host,
        ledger: &mut Ledger,
        policies: &Policies,
        pods: &PodTable,
        metrics: &Metrics,
    ) {
        if !host.waits_for_alarms() {
            return;
        }
        let batch = Target::Tier(Tier::BestEffort);
        let holds_batch = ledger.held().of(batch).any(|knob| row(knob).limits_cpu());
        let is_stale = std::mem::take(&mut self.is_stale) | (self.holds_batch != holds_batch);
        self.holds_batch = holds_batch;
        // Policies that limit batch pods are woken when other pods need more CPU.
        let of_pods = policies.iter().filter(|policy| policy.health == Health::Running && policy.mode().is_active());
        let of_pods = of_pods.flat_map(Policy::triggers).find(|trigger| is_cpu_pressure(trigger, Scope::Pod));
        let alarm = |trigger: &Trigger| Alarm { trigger: *trigger, target: Some(Target::Tier(Tier::Guaranteed)) };
        host.watch_load(of_pods.filter(|_| holds_batch).map(alarm));
        if is_stale {
            let wanted = wanted_watches(host, policies, pods, holds_batch);
            host.watch(&wanted);
            let missing = host.unwatched().count();
            metrics.watches(host.watches(), missing);
        }
        self.arrange_looks(host, ledger, policies, pods, is_stale);
    }

    /// Updates the host's list of containers to watch for throttling. The host decides how often idle ones are sampled.
    fn arrange_looks(
        &mut self,
        host: &mut Host,
        ledger: &mut Ledger,
        policies: &Policies,
        pods: &PodTable,
        is_stale: bool,
    ) {
        let is_wanted = |policy: &Policy| policy.health == Health::Running && policy.watches(&Trigger::Throttling);
        let has_looks = policies.iter().any(is_wanted);
        let was_wanted = std::mem::replace(&mut self.has_looks, has_looks);
        let has_changed = ledger.take_quota_changes() | host.has_lost_samples() | is_stale;
        if has_looks == was_wanted && !(has_looks && has_changed) {
            return;
        }
        let mut throttleable = std::mem::take(&mut self.throttleable);
        let mut beside = std::mem::take(&mut self.beside);
        throttleable.clear();
        beside.clear();
        if has_looks {
            for entry in pods.iter() {
                let is_asked = policies.iter().any(|policy| is_wanted(policy) && policy.is_asked(entry.id));
                for container in entry.containers.iter().filter(|container| container.attached) {
                    match throttleable_of(ledger, container.id).filter(|_| is_asked) {
                        Some(about) => throttleable.push(about),
                        None => beside.push(container.id),
                    }
                }
            }
        }
        host.sample_throttling(&throttleable, &beside);
        (self.throttleable, self.beside) = (throttleable, beside);
    }
}

fn is_cpu_pressure(trigger: &Trigger, of: Scope) -> bool {
    matches!(trigger, Trigger::Pressure(Pressure { scope, resource: Resource::Cpu, .. }) if *scope == of)
}

fn wanted_watches(host: &Host, policies: &Policies, pods: &PodTable, holds_batch: bool) -> BTreeSet<Alarm> {
    let mut wanted = BTreeSet::new();
    let mut want = |trigger, target| wanted.insert(Alarm { trigger, target });
    let attached = |target: &Target| host.attached_path(*target).is_some();
    for target in Tier::ALL.into_iter().map(Target::Tier).filter(attached) {
        want(Trigger::ContainerStarted, Some(target));
    }
    for entry in pods.iter().filter(|entry| entry.attached) {
        want(Trigger::ContainerStarted, Some(Target::Pod(entry.id)));
    }
    for policy in policies.iter() {
        for &trigger in policy.triggers() {
            let scope = match trigger {
                Trigger::Throttling | Trigger::ContainerStarted => continue,
                Trigger::Pressure(pressure) => pressure.scope,
                Trigger::MemoryEvents => Scope::Container,
            };
            if scope == Scope::Node {
                want(trigger, None);
                continue;
            }
            // Batch pods that a policy holds back always wait for CPUs. That is intended, so it must not wake the policy.
            let is_meant = holds_batch && is_cpu_pressure(&trigger, scope);
            let is_woken = |entry: &&PodEntry| !is_meant || entry.pod.kube_qos != KubeQos::BestEffort;
            for entry in pods.iter().filter(|entry| policy.is_asked(entry.id)).filter(is_woken) {
                if scope == Scope::Pod && entry.attached {
                    want(trigger, Some(Target::Pod(entry.id)));
                } else if scope == Scope::Container {
                    for container in entry.containers.iter().filter(|container| container.attached) {
                        want(trigger, Some(Target::Container(container.id)));
                    }
                }
            }
        }
    }
    wanted
}

fn throttleable_of(ledger: &Ledger, container: ContainerId) -> Option<Throttleable> {
    let bandwidth = ledger.quotas().get(Target::Container(container))?;
    Some(Throttleable { container, quota: bandwidth.quota?, period: bandwidth.period })
}
