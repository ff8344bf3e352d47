//! Alarms: which triggers are watched for whom, and what brings a policy's evaluation forward.

pub(crate) mod line;

use std::collections::BTreeSet;

use qosm_host::{HostError, Throttleable};
use qosm_model::alarm::{Alarm, Scope, Trigger};
use qosm_model::column::CpuCounters;
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::unit::Micros;

use crate::agent::Agent;
use crate::columns::{Reading, Readings};
use crate::policy::{Health, Now, Policy};
use crate::report::TriggerReport;

/// A new cgroup is opened after so long: by then whoever made it has written its limits.
const SETTLES_IN: Micros = Micros(50_000);
/// A container that used less of its quota than this in the last window is not looked at for throttling, in thousandths.
const AWAKE_PERMILLE: u64 = 10;
/// How long that window is at least.
const AWAKE_WINDOW: Micros = Micros(400_000);

/// What is to be done about alarms.
#[derive(Debug, Default)]
pub(crate) struct AlarmState {
    /// Heard since the last step, for recordings.
    pub(crate) heard: BTreeSet<Alarm>,
    /// Cgroups have appeared: when they are to be opened.
    appeared: Option<Micros>,
    /// Pods, cgroups or configuration changed since watches were arranged.
    pub(crate) is_stale: bool,
    /// CPU time as it was when it was last looked at who is awake.
    cpu: Option<(Micros, Reading<CpuCounters>)>,
}

impl Agent {
    /// Has the agent woken by `wake` as soon as a trigger fires: then [`Agent::next_alarm`] tells when to step. `wake` is called on
    /// another thread, and must not wait. Without this, policies are evaluated by their intervals.
    ///
    /// # Errors
    ///
    /// [`HostError::Alarms`].
    pub fn start_alarms(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), HostError> {
        self.alarms.is_stale = true;
        self.host.start_alarms(wake)
    }

    /// Takes what fired, and says at what moment an evaluation is due because of it: before that, or by the next tick, nothing
    /// needs to be done.
    pub fn next_alarm(&mut self, now: Now) -> Option<Micros> {
        for alarm in self.host.alarms() {
            match alarm.trigger {
                // The host tells in which directory; who it is will show.
                Trigger::ContainerStarted => {
                    self.alarms.appeared.get_or_insert(Micros(now.monotonic.0.saturating_add(SETTLES_IN.0)));
                }
                _ => self.hear(alarm, now),
            }
        }
        self.policies.iter().filter_map(Policy::next_alarm).chain(self.alarms.appeared).min()
    }

    /// Tells an alarm to the policies that asked for it.
    pub(crate) fn hear(&mut self, alarm: Alarm, now: Now) {
        self.metrics.alarm(&alarm.trigger);
        let pod = match alarm.target {
            None => None,
            Some(target) => match self.pods.of(target) {
                Some(entry) => Some(entry.id),
                // It went meanwhile.
                None => return,
            },
        };
        let mut is_heard = false;
        for policy in &mut self.policies {
            if policy.watches(&alarm.trigger) && pod.is_none_or(|pod| policy.is_asked(pod)) {
                is_heard |= policy.hear(alarm, now);
            }
        }
        if is_heard {
            self.alarms.heard.insert(alarm);
        }
    }

    /// A step looks at everything: what appeared is found by it.
    pub(crate) fn begin_alarms(&mut self, now: Now) -> BTreeSet<Alarm> {
        self.alarms.appeared = self.alarms.appeared.filter(|due| *due > now.monotonic);
        std::mem::take(&mut self.alarms.heard)
    }

    /// Containers whose cgroups have just been opened.
    pub(crate) fn started(&mut self, targets: &[Target], now: Now) {
        self.alarms.is_stale = true;
        for &target in targets {
            if let Target::Container(_) = target {
                let alarm = Alarm { trigger: Trigger::ContainerStarted, target: Some(target) };
                for policy in self.policies.iter_mut().filter(|policy| policy.watches(&Trigger::ContainerStarted)) {
                    policy.hear(alarm, now);
                }
            }
        }
    }

    /// Brings watches in line with pods and configuration.
    pub(crate) fn arrange_alarms(&mut self, readings: &Readings, now: Now) {
        if !self.host.waits_for_alarms() {
            return;
        }
        if std::mem::take(&mut self.alarms.is_stale) {
            let wanted = self.wanted_watches();
            self.host.watch(&wanted);
            let missing = self.host.unwatched().count();
            self.metrics.watches(self.host.watches(), missing);
        }
        self.arrange_looks(readings, now);
    }

    fn wanted_watches(&self) -> BTreeSet<Alarm> {
        let mut wanted = BTreeSet::new();
        let mut want = |trigger, target| wanted.insert(Alarm { trigger, target });
        let attached = |target: &Target| self.host.attached_path(*target).is_some();
        for target in Tier::ALL.into_iter().map(Target::Tier).filter(attached) {
            want(Trigger::ContainerStarted, Some(target));
        }
        for entry in self.pods.iter().filter(|entry| entry.attached) {
            want(Trigger::ContainerStarted, Some(Target::Pod(entry.id)));
        }
        for policy in &self.policies {
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
                for entry in self.pods.iter().filter(|entry| policy.is_asked(entry.id)) {
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

    /// Looks at the containers that could be throttled before the next tick: those with a quota that are at work.
    fn arrange_looks(&mut self, readings: &Readings, now: Now) {
        let is_wanted = |policy: &Policy| policy.health == Health::Running && policy.watches(&Trigger::Throttling);
        if !self.policies.iter().any(is_wanted) {
            self.alarms.cpu = None;
            return self.host.sample_throttling(&[]);
        }
        let Some(cpu) = &readings.cpu else { return };
        let elapsed = self.alarms.cpu.as_ref().map_or(0, |(then, _)| now.monotonic.0.saturating_sub(then.0));
        if self.alarms.cpu.is_some() && elapsed < AWAKE_WINDOW.0 {
            // In the milliseconds before an alarm hardly anybody ran.
            return;
        }
        let earlier = self.alarms.cpu.replace((now.monotonic, std::sync::Arc::clone(cpu)));
        let Some((_, before)) = earlier else { return };
        let mut looked_at = Vec::new();
        if elapsed > 0 {
            let mut earlier = before.iter().peekable();
            for &(container, counters) in cpu.iter() {
                while earlier.next_if(|(other, _)| *other < container).is_some() {}
                let Some((_, was)) = earlier.next_if(|(other, _)| *other == container) else { continue };
                let used = counters.usage.0.saturating_sub(was.usage.0);
                looked_at.extend(self.throttleable(container, used, elapsed));
            }
        }
        self.host.sample_throttling(&looked_at);
    }

    fn throttleable(&self, container: ContainerId, used: u64, elapsed: u64) -> Option<Throttleable> {
        let bandwidth = self.quotas.get(Target::Container(container))?;
        let (quota, period) = (bandwidth.quota?, bandwidth.period);
        let allowed = u128::from(quota.0) * u128::from(elapsed) * u128::from(AWAKE_PERMILLE);
        if u128::from(used) * u128::from(period.0) * 1000 < allowed {
            return None;
        }
        let pod = self.pods.of(Target::Container(container))?.id;
        let is_asked = |policy: &Policy| policy.watches(&Trigger::Throttling) && policy.is_asked(pod);
        self.policies.iter().any(is_asked).then_some(Throttleable { container, quota, period })
    }

    /// What a policy asked to be woken by, and what of it cannot be watched here.
    pub(crate) fn trigger_reports(&self, policy: &Policy) -> Vec<TriggerReport> {
        let report = |trigger: &Trigger| TriggerReport {
            trigger: trigger.to_string(),
            missing: self
                .host
                .unwatched()
                .find(|(alarm, _)| alarm.trigger == *trigger && self.is_watched_for(policy, alarm))
                .map(|(_, why)| why.to_owned()),
        };
        policy.triggers().iter().map(report).collect()
    }

    fn is_watched_for(&self, policy: &Policy, alarm: &Alarm) -> bool {
        let pod: Option<PodId> = alarm.target.and_then(|target| self.pods.of(target)).map(|entry| entry.id);
        pod.is_none_or(|pod| policy.is_asked(pod))
    }
}
