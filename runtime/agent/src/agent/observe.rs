//! Observes the node: pods of the sources, and existing cgroups.

use qosm_host::{Fired, Host, HostError};
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerCgroup, ContainerState, Pod, PodId, Tier};
use qosm_nri::{RuntimeEvent, StartReply};

use super::{Agent, context};
use crate::event::{AgentEvent, INVALID};
use crate::now::Now;
use crate::nri::RuntimeMessage;
use crate::observed::log_adjustment;
use crate::policy_set::resolved::PolicySet;
use crate::refused_limit;
use crate::sources::Sources;
use crate::step::Mode;
use crate::table::{Access, PauseChanges, RefusedPod};

impl Agent {
    /// Replaces the sources. The next step acts on them.
    pub fn update(&mut self, sources: Sources, now: Now) {
        let sources = self.observed.list(sources);
        self.take_sources(sources, now);
    }

    /// Takes sources into which the container runtime's messages are merged.
    fn take_sources(&mut self, sources: Sources, now: Now) {
        let before = self.observed.sources();
        let is_node_changed = !sources.node.configures_like(&before.node);
        let is_layer_changed = sources.config_maps != before.config_maps || self.ticks == 0;
        let created: Vec<(PodId, Pod)> =
            self.pods.iter().filter(|entry| entry.is_created).map(|entry| (entry.id, entry.pod.clone())).collect();
        let changes = self.pods.update(sources.pods.clone());
        let changed_objects = self.observed.replace(sources);
        self.refuse_twins(changes.refused, now);
        if self.run.mode == Mode::Enforce {
            for (id, before) in created {
                if let Some(entry) = self.pods.get(id)
                    && let Some(resized) = self.ledger.resize(&mut self.host, entry, &before)
                {
                    let refused = resized.err().and_then(|error| refused_limit::problem(&entry.pod, &error));
                    if let Some(entry) = self.pods.get_mut(id) {
                        entry.refused_limit = refused;
                    }
                }
            }
        }
        self.pods.protect(&changes.upserted, &self.run.agent.guard_rails.protected_namespaces);
        self.update_pauses(now);
        self.ledger.reach_changed();
        // The guard rails of tiers depend on whether there are protected pods.
        let is_protected = |id: &PodId| self.pods.get(*id).is_some_and(|entry| entry.access == Access::Protected);
        let was_protected = || changes.removed.iter().any(|entry| entry.access == Access::Protected);
        if changes.upserted.iter().any(is_protected) || was_protected() {
            self.ledger.touch_tiers();
        }
        for entry in &changes.removed {
            self.policies.forget_pod(entry.id);
            self.reporting.forget_pod(entry.id);
            self.ledger.forget_pod(entry.id);
        }
        self.pods.leave(changes.removed, changes.gone);
        self.pods.note_resized(changes.resized, &changes.cpu_resized, now.wall);
        self.ledger.touch_cpu(&self.pods, &changes.cpu_resized);
        let sources = self.observed.sources();
        self.policies.reconfigure(sources, &self.pods, is_node_changed, is_layer_changed, &changes.upserted);
        if is_node_changed || is_layer_changed {
            self.observed.save_texts(self.policies.good_texts());
        }
        self.policies.objects_changed(&changed_objects);
        self.alarms.is_stale = true;
        self.collect_problems(now);
    }

    /// Sends an event for each pod that is refused because another pod has the same UID: once while the conflict lasts.
    fn refuse_twins(&mut self, refused: Vec<RefusedPod>, now: Now) {
        for twin in refused {
            let problem = twin.problem();
            if !self.reporting.problems.contains(&problem) {
                let event = AgentEvent {
                    pod: twin.pod.key(),
                    kind: "Warning",
                    reason: INVALID.to_owned(),
                    message: problem.to_string(),
                    source: "agent".to_owned(),
                    count: 1,
                    last_millis: now.wall.0,
                    id: None,
                };
                self.reporting.emit_about(&self.pods, event, Some(&twin.pod), now, &mut Vec::new());
            }
            self.observed.add_problem(problem);
        }
    }

    /// Applies a policy set.
    pub fn apply_policy_set(&mut self, set: PolicySet, now: Now) {
        let saved = |key: &str| self.ledger.saved_state(key);
        self.policies.apply_policy_set(set, &saved, &context!(self, now));
        self.observed.save_texts(self.policies.good_texts());
        self.take_policy_changes(now);
    }

    /// Works out which pods are paused. A pod whose pause ends gets the settings that it missed.
    pub(super) fn update_pauses(&mut self, now: Now) {
        let PauseChanges { changed, resumed } = self.pods.update_pauses(now.wall);
        for pod in changed {
            self.ledger.reach_changed();
            self.alarms.is_stale = true;
            self.policies.pod_changed(pod, &self.pods);
        }
        self.ledger.resume(&resumed);
        self.ledger.note_pauses(&self.host, &self.pods);
    }

    /// Opens cgroups that have appeared, reads cpusets and updates pauses.
    pub(super) fn observe_cgroups(&mut self, now: Now) {
        for tier in Tier::ALL {
            let target = Target::Tier(tier);
            if self.host.attached_path(target).is_none() {
                let path = self.host.tier_path(tier);
                if self.pods.is_in_the_making(&self.host, target, &path, now.monotonic) {
                    continue;
                }
                let Self { host, ledger, observed, .. } = self;
                let mut opened = ledger.open_cgroup(host, target, &path);
                if let Err(HostError::Taken { by, .. }) = opened
                    && observed.give_way(host, by)
                {
                    opened = ledger.open_cgroup(host, target, &path);
                }
                if opened.is_ok() {
                    observed.tier_opened();
                    ledger.adopt(host, target);
                }
            }
        }
        let over = self.pods.cpu_resizes_over(now.wall);
        self.ledger.touch_cpu(&self.pods, &over);
        for id in self.pods.standing().incomplete.clone() {
            self.attach_pod(id, now);
        }
        if std::mem::take(&mut self.cpusets.is_tick) {
            self.host.begin_tick();
            let Self { host, pods, run, ledger, .. } = self;
            let is_narrowed = |target| ledger.held().holds_cpus(target);
            let changed = self.cpusets.read_due(host, pods, &run.agent, &is_narrowed, self.ticks);
            if self.cpusets.take_exclusive_changed() {
                // Sets in force lose CPUs that have become exclusive, and get back those that no longer are.
                ledger.touch_cpu_sets();
            }
            for pod in changed {
                self.policies.pod_changed(pod, &self.pods);
            }
        }
        self.update_pauses(now);
    }

    /// Opens the pod's cgroups that exist, and notifies the policies if there are more than before.
    fn attach_pod(&mut self, id: PodId, now: Now) {
        if let Some(is_news) = self.pods.refuses_binding(&self.host, id) {
            if is_news {
                self.collect_problems(now);
            }
            return;
        }
        if self.ledger.create_pod(&mut self.host, &mut self.pods, id) {
            self.collect_problems(now);
        }
        let (opened, refused) = self.open_pod(id, now);
        if self.pods.note_claims(&opened, refused) {
            self.collect_problems(now);
        }
        if !opened.is_empty() {
            self.take_opened(id, &opened, now);
        }
        if self.pods.note_absent(id, now.monotonic) {
            self.collect_problems(now);
        }
    }

    /// Takes over cgroups of a pod that were just opened: adopts their knobs, reads cpusets, notifies policies and alarms.
    fn take_opened(&mut self, id: PodId, opened: &[Target], now: Now) {
        self.ledger.opened(&mut self.host, opened);
        for &target in opened {
            self.cpusets.opened(target);
        }
        self.pods.attach(id, opened);
        for &target in opened {
            if let Target::Container(container) = target {
                let Self { host, pods, ledger, .. } = self;
                let is_narrowed = |target| ledger.held().holds_cpus(target);
                // The result is not needed: this pod is reported as changed anyway.
                self.cpusets.read(host, pods, &is_narrowed, container);
            }
        }
        self.policies.pod_changed(id, &self.pods);
        self.alarms.started(opened, &mut self.policies, &self.reporting.metrics, now);
    }

    /// Opens the existing cgroups of a pod and its containers that are not open yet. Returns these targets, and those that cannot be
    /// opened with the error.
    fn open_pod(&mut self, id: PodId, now: Now) -> (Vec<Target>, Vec<(Target, HostError)>) {
        let (mut opened, mut refused) = (Vec::new(), Vec::new());
        let Some(entry) = self.pods.get(id).cloned() else { return (opened, refused) };
        let given = &entry.pod;
        let Self { host, pods, ledger, observed, .. } = self;
        // A cgroup that was opened as an application's is closed if it belongs to a pod.
        let mut open = |host: &mut Host, target, path: &str| match ledger.open_cgroup(host, target, path) {
            Err(HostError::Taken { by, .. }) if observed.give_way(host, by) => ledger.open_cgroup(host, target, path),
            other => other,
        };
        if !entry.attached {
            let (target, path) = (Target::Pod(id), host.pod_path(given));
            if pods.is_in_the_making(host, target, &path, now.monotonic) {
                return (opened, refused);
            }
            let free = if given.cgroup.is_some() { pods.is_free(host, id, &path) } else { Ok(()) };
            match free.and_then(|()| open(host, target, &path)) {
                Ok(()) => opened.push(target),
                Err(error) => refused.push((target, error)),
            }
        }
        for (container, known) in given.containers.iter().zip(&entry.containers) {
            if known.attached || container.state != ContainerState::Running {
                continue;
            }
            let target = Target::Container(known.id);
            let attached = match host.container_path(given, container) {
                Ok(Some(path)) if pods.is_in_the_making(host, target, &path, now.monotonic) => continue,
                Ok(Some(path)) => {
                    let is_bound = matches!(container.cgroup, ContainerCgroup::Bound(_));
                    let free = if is_bound { pods.is_free(host, id, &path) } else { Ok(()) };
                    free.and_then(|()| open(host, target, &path))
                }
                Ok(None) => match &container.cgroup {
                    ContainerCgroup::Bound(path) => Err(HostError::Gone { path: path.clone() }),
                    _ => continue,
                },
                Err(error) => Err(error),
            };
            match attached {
                Ok(()) => opened.push(target),
                Err(error) => refused.push((target, error)),
            }
        }
        (opened, refused)
    }

    /// Handles a message from the container runtime. Returns a reply for a container that is about to start; drop it after the next step,
    /// which gives the container its settings.
    pub fn take_runtime_message(&mut self, message: RuntimeMessage, now: Now) -> Option<StartReply> {
        match message {
            RuntimeMessage::Link(link) => {
                self.observed.take_link(link);
                self.collect_problems(now);
            }
            RuntimeMessage::Event(RuntimeEvent::Starting(container, reply)) => {
                if self.observed.start(&mut self.host, &container) {
                    self.take_sources(self.observed.list_again(), now);
                    return Some(reply);
                }
                self.reporting.metrics.unknown_start();
            }
            RuntimeMessage::Event(RuntimeEvent::Synchronized(running)) => {
                self.observed.synchronize(&mut self.host, &running);
                self.take_sources(self.observed.list_again(), now);
            }
            RuntimeMessage::Event(RuntimeEvent::Stopped(id)) => self.observed.stop(&mut self.host, &id),
            RuntimeMessage::Event(RuntimeEvent::Adjusted(adjustment)) => {
                self.reporting.metrics.adjusted();
                log_adjustment(&adjustment);
            }
            RuntimeMessage::Event(
                RuntimeEvent::Connected(_) | RuntimeEvent::CgroupsChanged | RuntimeEvent::Answered(..),
            ) => {}
        }
        None
    }

    /// Starts to call `wake` as soon as a trigger fires; [`Agent::next_alarm`] then returns when to step. `wake` runs on another thread
    /// and must not block. Without this call policies are evaluated by their intervals only.
    ///
    /// # Errors
    ///
    /// [`HostError::Alarms`].
    pub fn start_alarms(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), HostError> {
        self.alarms.start(&mut self.host, wake)
    }

    /// Collects the triggers that fired. Returns the time at which an evaluation is due because of them; until then, or until the next
    /// tick, there is nothing to do.
    pub fn next_alarm(&mut self, now: Now) -> Option<qosm_model::unit::Micros> {
        let metrics = &self.reporting.metrics;
        self.alarms.next(&mut self.host, &mut self.policies, &self.pods, metrics, now)
    }

    /// Handles an alarm from a recording.
    pub(crate) fn receive(&mut self, fired: Fired, now: Now) {
        self.alarms.receive(fired, &mut self.policies, &self.pods, &self.reporting.metrics, now);
    }
}
