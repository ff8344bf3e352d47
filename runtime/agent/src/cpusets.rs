//! Reads cpusets: which containers have exclusive CPUs, and which CPUs no pod may use.
//!
//! The kubelet writes cpusets at its own pace: exclusive CPUs may come ten seconds after their container, and the shared CPUs change with
//! each container that gets exclusive ones. So the cpuset of a new container is read in each tick, that of a container that could have
//! exclusive CPUs as often as a held knob, and beyond these one cpuset per tick, all containers in turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_host::{Host, HostError};
use qosm_model::cpu_topology::CpuManager;
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, ContainerState, PodId, QosClass, Tier};
use rustc_hash::FxHashMap;

use crate::config::AgentConfig;
use crate::table::{PodTable, pinnable_cpus};

/// Number of ticks in which a container's cpuset is read after its cgroup was opened.
const YOUNG_READS: u8 = 5;

/// Cpusets as last read.
#[derive(Debug, Default)]
pub(crate) struct Cpusets {
    sets: FxHashMap<Target, Arc<[u32]>>,
    /// New containers, with the number of ticks in which they are still read.
    young: Vec<(ContainerId, u8)>,
    /// CPUs that no pod may use, sorted.
    reserved: Vec<u32>,
    /// Number of changes of `reserved`.
    generation: u32,
    has_changed: bool,
    /// Number of changes of any cpuset.
    changes: u64,
    /// Containers with exclusive CPUs.
    exclusive: BTreeSet<ContainerId>,
    /// Whether the CPUs that containers have exclusively may have changed.
    has_exclusive_changed: bool,
    /// Whether the current step is a tick's: due cpusets are read in ticks only.
    pub(crate) is_tick: bool,
}

impl Cpusets {
    /// The CPUs that a container may run on, where they are known.
    pub(crate) fn of(&self, container: ContainerId) -> Option<&Arc<[u32]>> {
        self.sets.get(&Target::Container(container))
    }

    /// Number of changes of any cpuset so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the CPUs that containers have exclusively may have changed since the last call.
    pub(crate) fn take_exclusive_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_exclusive_changed)
    }

    /// CPUs that no pod may use, and how often this set has changed.
    pub(crate) fn reserved(&self) -> (&[u32], u32) {
        (&self.reserved, self.generation)
    }

    pub(crate) fn opened(&mut self, target: Target) {
        if let Target::Container(container) = target {
            self.young.push((container, YOUNG_READS));
        }
    }

    pub(crate) fn forget(&mut self, target: Target) {
        if self.sets.remove(&target).is_some() {
            self.has_changed = true;
            self.changes = self.changes.wrapping_add(1);
        }
        if let Target::Container(container) = target {
            self.has_exclusive_changed |= self.exclusive.remove(&container);
            self.young.retain(|(young, _)| *young != container);
        }
    }

    /// Notes a cpuset. Returns whether it has changed.
    fn note(&mut self, target: Target, cpus: Option<Vec<u32>>) -> bool {
        let known = self.sets.get(&target);
        if known.map(Arc::as_ref) == cpus.as_deref() {
            return false;
        }
        self.has_changed = true;
        self.changes = self.changes.wrapping_add(1);
        let Some(cpus) = cpus else {
            self.sets.remove(&target);
            return true;
        };
        // Most containers share one set.
        let same = self.sets.values().find(|known| ***known == *cpus).map(Arc::clone);
        self.sets.insert(target, same.unwrap_or_else(|| cpus.into()));
        true
    }
}

impl Cpusets {
    /// Reads the cpusets whose turn it is in this tick. Returns the pods whose exclusive CPUs changed, which policies see.
    pub(crate) fn read_due(
        &mut self,
        host: &mut Host,
        pods: &mut PodTable,
        config: &AgentConfig,
        is_narrowed: &dyn Fn(Target) -> bool,
        ticks: u64,
    ) -> Vec<PodId> {
        let mut changed = Vec::new();
        let mut young = std::mem::take(&mut self.young);
        young.retain_mut(|(container, left)| {
            changed.extend(self.read(host, pods, is_narrowed, *container));
            *left = left.saturating_sub(1);
            *left > 0
        });
        // Keeps containers that were added meanwhile.
        young.append(&mut self.young);
        self.young = young;
        let turns = u64::from(config.drift.verify_over_ticks.max(1));
        let turn = ticks % turns;
        let places = pods.standing().pinnable.len();
        for place in (0..places).filter(|place| u64::try_from(*place).is_ok_and(|place| place % turns == turn)) {
            if let Some(&container) = pods.standing().pinnable.get(place) {
                changed.extend(self.read(host, pods, is_narrowed, container));
            }
        }
        // Where all held knobs are read back in each tick, all cpusets are too.
        let running = pods.standing().running.len();
        let place = usize::try_from(ticks).unwrap_or(0) % running.max(1);
        for place in if turns == 1 { 0..running } else { place..place + 1 } {
            if let Some(&container) = pods.standing().running.get(place) {
                changed.extend(self.read(host, pods, is_narrowed, container));
            }
        }
        if turn == 0 {
            let tier = Target::Tier(Tier::Guaranteed);
            let cpus = host.cpuset_cpus(tier).unwrap_or_default();
            self.note(tier, cpus);
        }
        if std::mem::take(&mut self.has_changed) {
            self.note_reserved(host, pods, is_narrowed);
        }
        changed
    }

    /// Reads the cpuset of one container. Returns its pod if its exclusive CPUs changed.
    pub(crate) fn read(
        &mut self,
        host: &mut Host,
        pods: &mut PodTable,
        is_narrowed: &dyn Fn(Target) -> bool,
        id: ContainerId,
    ) -> Option<PodId> {
        let cpus = match host.cpuset_cpus(Target::Container(id)) {
            Ok(cpus) => cpus,
            Err(HostError::Gone { .. }) => {
                self.note(Target::Container(id), None);
                self.has_exclusive_changed |= self.exclusive.remove(&id);
                return None;
            }
            // A cpuset that cannot be read changes nothing.
            Err(_) => return None,
        };
        let exclusive = self.exclusive_cpus(host, pods, id, cpus.as_deref());
        let has_moved = self.note(Target::Container(id), cpus);
        // CPUs that a policy chose are not exclusive, even if their number is what the container asks for.
        if is_narrowed(Target::Container(id)) {
            return None;
        }
        let (entry, place) = pods.owner(id)?;
        let pod = entry.id;
        let known = entry.containers.get(place)?.exclusive_cpus;
        if known != exclusive || (has_moved && known.is_some()) {
            self.has_exclusive_changed = true;
        }
        match exclusive {
            Some(_) => self.exclusive.insert(id),
            None => self.exclusive.remove(&id),
        };
        if known == exclusive {
            return None;
        }
        if let Some(known) = pods.get_mut(pod).and_then(|entry| entry.containers.get_mut(place)) {
            known.exclusive_cpus = exclusive;
        }
        self.has_changed = true;
        Some(pod)
    }

    /// Works out the CPUs that no pod may use: those outside the cpuset of `kubepods`, and those in no container's cpuset, shared or
    /// exclusive. While no cpuset of a container with shared CPUs is known, only that of `kubepods` counts.
    fn note_reserved(&mut self, host: &Host, pods: &PodTable, is_narrowed: &dyn Fn(Target) -> bool) {
        let online = host.online_cpus();
        let mut may_run: Vec<u32> = Vec::new();
        let mut is_known = false;
        for entry in pods.iter().filter(|entry| entry.pod.active) {
            // Another agent pins these pods: their cpusets do not show which CPUs the others share.
            let is_bound = matches!(entry.pod.declared_qos(), Some(QosClass::Lse | QosClass::Lsr));
            let above =
                [Target::Tier(Tier::Guaranteed), Target::Tier(entry.pod.kube_qos.tier()), Target::Pod(entry.id)];
            let is_pod_narrowed = above.into_iter().any(is_narrowed);
            for container in entry.containers.iter().filter(|container| container.attached) {
                // CPUs that a policy took away are not reserved.
                if is_pod_narrowed || is_narrowed(Target::Container(container.id)) {
                    continue;
                }
                let Some(cpus) = self.of(container.id) else { continue };
                is_known |= container.exclusive_cpus.is_none() && !is_bound;
                for cpu in cpus.iter() {
                    if let Err(place) = may_run.binary_search(cpu) {
                        may_run.insert(place, *cpu);
                    }
                }
            }
        }
        let tier =
            self.sets.get(&Target::Tier(Tier::Guaranteed)).filter(|_| !is_narrowed(Target::Tier(Tier::Guaranteed)));
        let is_reserved =
            |cpu: &u32| is_known && may_run.binary_search(cpu).is_err() || tier.is_some_and(|tier| !tier.contains(cpu));
        let reserved: Vec<u32> = online.into_iter().filter(is_reserved).collect();
        if reserved != self.reserved {
            tracing::info!(cpus = qosm_model::numa::list_text(reserved.iter().copied()), "CPUs that no pod may use");
            self.reserved = reserved;
            self.generation = self.generation.wrapping_add(1);
        }
    }
}

impl Cpusets {
    /// Number of CPUs that the kubelet's static CPU manager gave to a container exclusively: the container qualifies, its cpuset has
    /// exactly as many CPUs as it asks for, and the manager's state names it. While that cannot be read, no other running container may
    /// have the same set: an init container that has ended leaves its CPUs to its pod.
    fn exclusive_cpus(&self, host: &mut Host, pods: &PodTable, id: ContainerId, cpus: Option<&[u32]>) -> Option<u32> {
        let (entry, place) = pods.owner(id)?;
        let limit = pinnable_cpus(&entry.pod, place)?;
        let cpus = cpus?;
        let count = u32::try_from(cpus.len()).ok()?;
        if count != limit || count >= host.cpus() {
            return None;
        }
        let is_own = match host.cpu_manager_state() {
            Ok(Some(state)) if state.manager != CpuManager::Unknown => {
                state.names(&entry.pod, entry.pod.containers.get(place)?)
            }
            Ok(_) | Err(_) => {
                let runs = |other: ContainerId| {
                    let container = pods.owner(other).and_then(|(entry, place)| entry.pod.containers.get(place));
                    container.is_some_and(|container| container.state == ContainerState::Running)
                };
                let is_others =
                    |target: Target| matches!(target, Target::Container(other) if other != id && runs(other));
                !self.sets.iter().any(|(&target, set)| **set == *cpus && is_others(target))
            }
        };
        is_own.then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use qosm_engine::Engine;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::Agent;
    use crate::facts::Facts;
    use crate::now::Now;
    use crate::replay::Replay;
    use crate::replay::line::TickLine;
    use crate::step::Mode;

    fn pod(name: &str, cpus: &str) -> Value {
        let amounts = json!({"cpu": cpus, "memory": "1Gi"});
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}")},
            "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
        })
    }

    fn files(name: &str, version: &str, cpus: &str) -> Value {
        let file = if version == "v1" { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        json!({"pod": format!("default/{name}"), "container": "app", "files": {file: cpus}})
    }

    fn node(version: &str, pods: &[Value], cgroups: &[Value]) -> Replay {
        managed(&json!({"cgroup": version, "cpus": 8}), pods, cgroups)
    }

    fn managed(host: &Value, pods: &[Value], cgroups: &[Value]) -> Replay {
        let facts = json!({"host": host, "pods": pods, "cgroups": cgroups});
        let facts: Facts = serde_json::from_value(facts).unwrap();
        let mut replay =
            Replay::new(&facts, Default::default(), Engine::new().unwrap(), Vec::new(), Mode::Plan).unwrap();
        replay.open();
        replay
    }

    fn play(replay: &mut Replay, cgroups: &[Value]) {
        let line: TickLine = serde_json::from_value(json!({"cgroups": cgroups})).unwrap();
        replay.play(&line).unwrap();
    }

    /// Exclusive CPUs of the first pod's container, and the CPUs that no pod may use.
    fn seen(agent: &Agent) -> (Option<u32>, String) {
        let entry = agent.view().pods.iter().next().unwrap();
        let reserved = agent.view().cpusets.reserved().0.iter().copied();
        (entry.containers[0].exclusive_cpus, qosm_model::numa::list_text(reserved))
    }

    #[test]
    fn exclusive_cpus_count_whenever_they_come_and_go() {
        for version in ["v1", "v2"] {
            let mut replay = node(version, &[pod("pinned", "4"), pod("web", "1500m")], &[]);
            assert_eq!(seen(replay.agent()), (None, String::new()));
            play(&mut replay, &[files("pinned", version, "2-5")]);
            assert_eq!(seen(replay.agent()), (Some(4), String::new()), "{version}");
            play(&mut replay, &[files("pinned", version, "0-7")]);
            assert_eq!(seen(replay.agent()), (None, String::new()), "{version}");
            // Exclusive CPUs that exist from the start count at once.
            let replay = node(version, &[pod("pinned", "4")], &[files("pinned", version, "2-5")]);
            assert_eq!(seen(replay.agent()).0, Some(4), "{version}");
            // Half a CPU cannot be exclusive.
            let replay = node(version, &[pod("pinned", "3500m")], &[files("pinned", version, "2-5")]);
            assert_eq!(seen(replay.agent()).0, None, "{version}");
        }
    }

    #[test]
    fn shared_cpus_are_nobodys_own_even_if_there_are_as_many_as_a_container_asks_for() {
        let state = |policy: &str, owner: &str| json!({"policyName": policy, "defaultCpuSet": "0-1,6-7", "entries": {owner: {"app": "2-5"}}, "checksum": 1});
        for (state, expected) in [
            (state("static", "u-pinned"), Some(4)),
            (state("static", "u-web"), None),
            (json!({"policyName": "none", "defaultCpuSet": "", "checksum": 1}), None),
            (Value::Null, Some(4)),
        ] {
            let host = json!({"cgroup": "v2", "cpus": 8, "cpuManagerState": state});
            let replay = managed(&host, &[pod("pinned", "4"), pod("web", "1500m")], &[files("pinned", "v2", "2-5")]);
            assert_eq!(seen(replay.agent()).0, expected, "{state}");
        }
        // Kubelets before 1.18 named the container by its ID.
        let mut old = pod("pinned", "4");
        old["status"] = json!({"phase": "Running", "containerStatuses": [
            {"name": "app", "containerID": "containerd://8f3a", "state": {"running": {}}},
        ]});
        for (id, expected) in [("8f3a", Some(4)), ("9999", None)] {
            let state = json!({"policyName": "static", "defaultCpuSet": "0-1,6-7", "entries": {id: "2-5"}});
            let host = json!({"cgroup": "v2", "cpus": 8, "cpuManagerState": state});
            let replay = managed(&host, std::slice::from_ref(&old), &[files("pinned", "v2", "2-5")]);
            assert_eq!(seen(replay.agent()).0, expected, "{id}");
        }
        // Without the kubelet's state, a set that others have too is shared.
        let sets = [files("pinned", "v2", "2-5"), files("web", "v2", "2-5")];
        let mut replay = node("v2", &[pod("pinned", "4"), pod("web", "1500m")], &sets);
        play(&mut replay, &[]);
        assert_eq!(seen(replay.agent()).0, None);
    }

    #[test]
    fn an_init_container_that_has_ended_leaves_its_cpus_to_its_pod() {
        let status = |prepare: &str, app: &str| {
            let state =
                |state: &str| if state == "terminated" { json!({state: {"exitCode": 0}}) } else { json!({state: {}}) };
            let running = |name: &str, word: &str| json!({"name": name, "containerID": format!("containerd://{name}"), "state": state(word)});
            json!({"phase": "Running", "initContainerStatuses": [running("prepare", prepare)], "containerStatuses": [running("app", app)]})
        };
        let at = |prepare: &str, app: &str| {
            let mut pod = pod("pinned", "4");
            pod["spec"]["initContainers"] =
                json!([{"name": "prepare", "resources": pod["spec"]["containers"][0]["resources"]}]);
            pod["status"] = status(prepare, app);
            pod
        };
        let mut prepares = files("pinned", "v2", "2-5");
        prepares["container"] = json!("prepare");
        let mut replay = node("v2", &[at("running", "waiting")], &[prepares]);
        let line =
            json!({"pods": {"upserted": [at("terminated", "running")]}, "cgroups": [files("pinned", "v2", "2-5")]});
        let line: TickLine = serde_json::from_value(line).unwrap();
        replay.play(&line).unwrap();
        play(&mut replay, &[]);
        let entry = replay.agent().view().pods.iter().next().unwrap();
        let app = entry.pod.containers.iter().position(|container| container.name == "app").unwrap();
        assert_eq!(entry.containers[app].exclusive_cpus, Some(4));
    }

    #[test]
    fn a_container_is_looked_at_while_it_is_young_and_later_in_its_turn() {
        let mut replay = node("v2", &[pod("pinned", "4"), pod("web", "1500m")], &[]);
        let agent = &mut replay.agent;
        agent.config_mut().drift.verify_over_ticks = 10;
        let mut at = 0;
        let mut ticks_until = |agent: &mut Agent, cpus: &str, expected: Option<u32>| {
            let running = agent.pods().standing().running[0];
            let path = agent.view().host.attached_path(Target::Container(running)).unwrap().to_owned();
            agent.host_mut().simulated_mut().unwrap().overwrite(&path, "cpuset.cpus.effective", cpus).unwrap();
            let ticks = (1..=20).find(|_| {
                at += 1_000_000;
                agent.step(Now { monotonic: qosm_model::unit::Micros(at), ..Now::default() });
                seen(agent).0 == expected
            });
            ticks.unwrap()
        };
        assert_eq!(ticks_until(agent, "2-5", Some(4)), 1, "it is young");
        for (cpus, expected) in [("0-7", None), ("0-3", Some(4)), ("0-7", None)] {
            assert!(ticks_until(agent, cpus, expected) <= 10);
        }
    }

    #[test]
    fn cpus_that_no_pod_may_use_are_reserved() {
        for version in ["v1", "v2"] {
            let pods = [pod("pinned", "4"), pod("web", "1500m"), pod("db", "1500m")];
            // The kubelet's static policy with `strict-cpu-reservation`.
            let all = [files("pinned", version, "2-5"), files("web", version, "6-7"), files("db", version, "6-7")];
            let mut replay = node(version, &pods, &all);
            assert_eq!(seen(replay.agent()), (Some(4), "0-1".to_owned()), "{version}");
            // One container that may run on them is enough.
            play(&mut replay, &[files("db", version, "0-1,6-7")]);
            assert_eq!(seen(replay.agent()), (Some(4), String::new()), "{version}");
            // No cpuset shows the shared CPUs.
            let replay = node(version, &pods[..1], &all[..1]);
            assert_eq!(seen(replay.agent()), (Some(4), String::new()), "{version}");
            // The cpuset of `kubepods`.
            let file = if version == "v1" { "cpuset.cpus" } else { "cpuset.cpus.effective" };
            let replay = node(version, &pods[1..], &[json!({"tier": "kubepods", "files": {file: "1-7"}})]);
            assert_eq!(seen(replay.agent()).1, "0", "{version}");
        }
    }
}
