//! What the sources say, and taking it: which pods came, changed and went, and what their policies are to make of it.

use std::collections::BTreeSet;

use qosm_cluster::{Objects, PolicyModule};
use qosm_host::{Executed, Wanted};
use qosm_model::knob::{Knob, Target};
use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod, PodId};
use qosm_model::problem::{Problem, chain};

use crate::agent::{Agent, Mode};
use crate::policy::Now;
use crate::table::Access;

/// What the sources say: who should run here, and how.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// All pods of the node.
    pub pods: Vec<Pod>,
    /// All ConfigMaps that matter.
    pub config_maps: Vec<ConfigMap>,
    /// Modules that run here if they select this node.
    pub policy_modules: Vec<PolicyModule>,
    /// PolicyModules that are there and cannot be read: what of them runs here stays.
    pub unread_modules: BTreeSet<String>,
    /// The node.
    pub node: Node,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// What is wrong with the way to the API server.
    pub troubles: Vec<Problem>,
}

impl Sources {
    /// Whether there are PolicyModules at all.
    pub(crate) fn names_modules(&self) -> bool {
        !self.policy_modules.is_empty() || !self.unread_modules.is_empty()
    }
}

impl From<Objects> for Sources {
    fn from(objects: Objects) -> Self {
        Self {
            pods: objects.pods,
            config_maps: objects.config_maps,
            policy_modules: objects.policy_modules,
            unread_modules: objects.unread_modules,
            node: objects.node.unwrap_or_default(),
            problems: objects.problems,
            troubles: objects.troubles,
        }
    }
}

impl Agent {
    /// Takes what the sources say now. The next step acts on it.
    pub fn update(&mut self, sources: Sources, now: Now) {
        let node_changed = sources.node != self.sources.node;
        let maps_changed = sources.config_maps != self.sources.config_maps;
        let made: Vec<(PodId, Pod)> =
            self.pods.iter().filter(|entry| entry.made).map(|entry| (entry.id, entry.given.clone())).collect();
        let changes = self.pods.update(sources.pods.clone());
        self.sources = sources;
        for (id, before) in made {
            self.resize(id, &before);
        }
        self.protect(&changes.upserted);
        self.update_holds(now);
        for entry in changes.removed {
            for policy in &mut self.policies {
                policy.forget(entry.id);
            }
            self.holds.remove(&entry.id);
            self.events.forget(entry.id);
            self.announced.retain(|(pod, _)| *pod != entry.id);
            self.leaving.push(entry);
        }
        self.leaving_containers.extend(changes.gone);
        for policy in &mut self.policies {
            if node_changed {
                policy.node_changed();
            }
            if node_changed || maps_changed || self.ticks == 0 {
                policy.reconfigure(&self.sources.config_maps, &self.sources.node, &self.pods);
            }
            for &id in &changes.upserted {
                policy.reckon(id, &self.pods, true);
            }
        }
        self.alarms.is_stale = true;
        self.collect_problems(now);
    }

    /// Marks pods in namespaces that policies must not touch.
    fn protect(&mut self, pods: &[PodId]) {
        let protected = &self.config.guard_rails.protected_namespaces;
        for &id in pods {
            if let Some(entry) = self.pods.get_mut(id)
                && protected.contains(&entry.given.namespace)
            {
                entry.access = Access::Protected;
            }
        }
    }

    /// Stands in for the kubelet where the agent made the pod's cgroups: changed limits are written.
    fn resize(&mut self, id: PodId, before: &Pod) {
        let Some(entry) = self.pods.get(id) else { return };
        if self.mode == Mode::Plan || bounds(&entry.given) == bounds(before) {
            return;
        }
        let given = entry.given.clone();
        let targets: Vec<Target> = entry.targets().collect();
        // A burst in force keeps a mainline kernel from taking a smaller quota, and `cpu.idle` every kernel from taking a weight. The
        // leases are written again in the next step.
        let in_the_way: Vec<Wanted> = targets
            .iter()
            .flat_map(|&target| [Knob::CfsBurst, Knob::CpuIdle].map(|knob| (target, knob)))
            .filter_map(|(target, knob)| {
                let held = self.held.get(&(target, knob))?;
                Some(Wanted { target, knob, value: held.baseline })
            })
            .collect();
        for lower in self.host.plan(&in_the_way).steps {
            let key = (lower.target, lower.knob);
            if let Ok(Executed::Done(shown)) = self.host.execute(&lower)
                && let Some(held) = self.held.get_mut(&key)
            {
                held.written = shown;
                self.dirty.insert(key);
            }
        }
        if let Err(error) = self.host.resize(&given) {
            tracing::warn!(pod = given.key(), error = chain(&error), "changed limits cannot be written");
        }
        for target in targets {
            let key = (target, Knob::CpuWeight);
            if let Some(held) = self.held.get_mut(&key)
                && let Ok(weight) = self.host.read(target, Knob::CpuWeight)
            {
                (held.baseline, held.written) = (weight, weight);
                self.dirty.insert(key);
            }
        }
    }
}

/// What a kubelet turns into limits of cgroups.
fn bounds(pod: &Pod) -> impl PartialEq {
    let of_pod = (pod.cpu_limit, pod.memory_limit, pod.cpu_overhead, pod.memory_overhead);
    let containers = pod.containers.iter();
    let of_containers: Vec<_> =
        containers.map(|container| (container.cpu_request, container.cpu_limit, container.memory_limit)).collect();
    (of_pod, of_containers)
}
