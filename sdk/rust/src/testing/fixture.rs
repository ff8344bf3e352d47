//! The state of a case: pods with their ids, current samples, and leases.

use std::collections::{BTreeMap, BTreeSet};

use super::block_io::BlockIo;
use super::case::{ContainerFacts, NodeFacts, PodDescription};
use super::cpu_topology::{CpuPlaceRow, CpuTopologyRow};
use super::node_knobs::NodeSettings;
use super::node_use::ApplicationRow;
use super::object::{ConfigKeyRow, NodeObjectRow, PodObjectRow};
use super::requests::{Requests, uid};
use super::resctrl::{Counted, Held};
use super::run::CaseError;
use super::tick::{
    AlarmRow, BandwidthRow, NumaNodeRow, NumaRow, PressureRow, ProgressRow, Quota, ResourceWord, ScopeWord, TickFacts,
    TriggerRow,
};
use crate::counters::{CpuRow, GroupRow, MemoryRow};
use crate::kubelet;
use crate::mock::{CPU_QUOTA, ClassChange, Columns, Value};
use crate::{
    Alarm, ApplicationUse, Bandwidth, Cause, Container, ContainerId, ContainerKind, ContainerState, Cpu, CpuSet,
    ExclusiveCpus, ExtendedResource, Group, GroupUse, IoVolume, KubeQos, MigrationProgress, MigrationState, NodeMemory,
    NodePressure, NodeSample, NumaNode, NumaSample, NumaShare, PodFacts, PodId, PressureScope, PressureTrigger,
    ProcessFailure, QosClass, StalledResource, Target, Tier, Topology, Trigger,
};

/// Default threshold and window of pressure triggers, in microseconds.
const STALL_USEC: u32 = 150_000;
const STALL_WINDOW_USEC: u32 = 1_000_000;

#[derive(Default)]
pub(super) struct CaseFixture {
    pub(super) leases: BTreeMap<(Target, &'static str), Value>,
    pods: BTreeMap<String, Actor>,
    /// Names of all pods and containers that ever existed, by id.
    pod_names: BTreeMap<PodId, String>,
    container_names: BTreeMap<ContainerId, String>,
    /// Ids by name and number of restarts.
    container_ids: BTreeMap<(String, u32), ContainerId>,
    node: Option<NodeSample>,
    cpu: BTreeMap<String, CpuRow>,
    memory: BTreeMap<String, MemoryRow>,
    pressure: BTreeMap<String, PressureRow>,
    node_memory: Option<NodeMemory>,
    node_pressure: Option<NodePressure>,
    groups: BTreeMap<String, GroupRow>,
    applications: BTreeMap<String, ApplicationRow>,
    cpu_topology: Option<CpuTopologyRow>,
    cpu_sets: BTreeMap<String, Vec<u32>>,
    numa_nodes: Vec<NumaNodeRow>,
    numa: BTreeMap<String, NumaRow>,
    migrations: BTreeMap<String, ProgressRow>,
    /// Token of each container's latest migration.
    tokens: BTreeMap<ContainerId, u64>,
    pub(super) held_classes: Held,
    /// Names of all classes that were ever defined.
    classes: BTreeSet<String>,
    counted: Counted,
    node_object: Option<NodeObjectRow>,
    pod_objects: BTreeMap<String, PodObjectRow>,
    cluster_config: BTreeMap<String, ConfigKeyRow>,
    pub(super) requests: Requests,
    /// Whether group identities can take effect.
    pub(super) group_identity: bool,
    /// Whether containers can join core scheduling groups.
    pub(super) core_scheduling: bool,
    pub(super) node_settings: NodeSettings,
    pub(super) block_io: BlockIo,
}

struct Actor {
    facts: PodFacts,
    bandwidth: Vec<Bandwidth>,
}

impl CaseFixture {
    pub(super) fn node(&mut self, facts: &NodeFacts) {
        let node = self.node.get_or_insert(NodeSample {
            cpus: 8,
            memory_capacity_bytes: 32 << 30,
            memory_allocatable_bytes: facts.memory_capacity_bytes.unwrap_or(32 << 30),
            page_size_bytes: 4096,
            cpu_usage_usec: None,
            memory_available_bytes: None,
        });
        node.cpus = facts.cpus.unwrap_or(node.cpus);
        node.memory_capacity_bytes = facts.memory_capacity_bytes.unwrap_or(node.memory_capacity_bytes);
        node.memory_allocatable_bytes = facts.memory_allocatable_bytes.unwrap_or(node.memory_allocatable_bytes);
        node.page_size_bytes = facts.page_size_bytes.unwrap_or(node.page_size_bytes);
        node.cpu_usage_usec = facts.cpu_usage_usec.map_or(node.cpu_usage_usec, |usage| usage.known());
        node.memory_available_bytes =
            facts.memory_available_bytes.map_or(node.memory_available_bytes, |bytes| bytes.known());
        self.node_memory = facts.memory.map(Into::into).or(self.node_memory);
        self.node_pressure = facts.pressure.map(Into::into).or(self.node_pressure);
    }

    pub(super) fn samples(&mut self, tick: &TickFacts) {
        if let Some(cpu) = &tick.cpu {
            self.cpu.clone_from(cpu);
        }
        if let Some(memory) = &tick.memory {
            self.memory.clone_from(memory);
        }
        if let Some(pressure) = &tick.pressure {
            self.pressure.clone_from(pressure);
        }
        if let Some(groups) = &tick.groups {
            self.groups.clone_from(groups);
        }
        if let Some(applications) = &tick.applications {
            self.applications.clone_from(applications);
        }
        if let Some(topology) = &tick.cpu_topology {
            self.cpu_topology = Some(topology.clone());
        }
        if let Some(sets) = &tick.cpu_sets {
            self.cpu_sets.clone_from(sets);
        }
        if let Some(nodes) = &tick.numa_nodes {
            self.numa_nodes.clone_from(nodes);
        }
        if let Some(numa) = &tick.numa {
            self.numa.clone_from(numa);
        }
        if let Some(migrations) = &tick.migrations {
            self.migrations.clone_from(migrations);
        }
        if let Some(domains) = &tick.cache_domains {
            self.counted.domains.clone_from(domains);
        }
        if let Some(classes) = &tick.class_usage {
            self.counted.classes.clone_from(classes);
        }
        if let Some(containers) = &tick.container_usage {
            self.counted.containers.clone_from(containers);
        }
        if let Some(rest) = &tick.rest_usage {
            self.counted.rest.clone_from(rest);
        }
        if let Some(states) = &tick.class_states {
            self.counted.states.clone_from(states);
        }
        if let Some(node) = &tick.node_object {
            self.node_object = Some(node.clone());
        }
        if let Some(pods) = &tick.pod_objects {
            self.pod_objects.clone_from(pods);
        }
        if let Some(keys) = &tick.cluster_config {
            self.cluster_config.clone_from(keys);
        }
        if let Some(states) = &tick.resource_states {
            self.requests.states.clone_from(states);
        }
        if let Some(states) = &tick.eviction_states {
            self.requests.evictions.clone_from(states);
        }
    }

    pub(super) fn cause(&self, tick: &TickFacts, place: &str) -> Result<Cause, CaseError> {
        match tick.cause.as_deref() {
            None | Some("interval") => Ok(Cause::Interval),
            Some("podsChanged") => Ok(Cause::PodsChanged),
            Some("configChanged") => Ok(Cause::ConfigChanged),
            Some("alarm") => Ok(Cause::Alarm),
            Some(word) => Err(nonsense(place, format!("`{word}` is no cause"))),
        }
    }

    pub(super) fn alarms(&self, tick: &TickFacts, place: &str) -> Result<Vec<Alarm>, CaseError> {
        let alarm = |row: &AlarmRow| {
            let target = row.target.as_deref().map(|name| self.named(name, place)).transpose()?;
            Ok(Alarm { trigger: trigger(row.trigger), target })
        };
        tick.alarms.iter().map(alarm).collect()
    }

    /// The tier, pod or container with this name.
    fn named(&self, name: &str, place: &str) -> Result<Target, CaseError> {
        let tiers = [Tier::Guaranteed, Tier::Burstable, Tier::BestEffort].map(Target::Tier).into_iter();
        let pods = self.pods.values().map(|pod| Target::Pod(pod.facts.id));
        let containers = self.pods.values().flat_map(|pod| &pod.facts.containers);
        tiers
            .chain(pods)
            .chain(containers.map(|container| Target::Container(container.id)))
            .find(|&target| self.target_name(target) == name)
            .ok_or_else(|| nonsense(place, format!("there is no `{name}`")))
    }

    pub(super) fn upsert(&mut self, pods: &[PodDescription], place: &str) -> Result<Vec<PodFacts>, CaseError> {
        if let Some(twice) = twice(pods.iter().map(|pod| pod.name.as_str())) {
            return Err(nonsense(place, format!("pod {twice} is there twice")));
        }
        pods.iter().map(|pod| self.upsert_one(pod, place)).collect()
    }

    pub(super) fn remove(&mut self, names: &[String]) {
        for name in names {
            self.pods.remove(name);
        }
        self.drop_vanished();
    }

    pub(super) fn lease(&mut self, target: Target, knob: &'static str, value: Option<Value>) {
        match value {
            Some(value) if self.exists(target) => self.leases.insert((target, knob), value),
            _ => self.leases.remove(&(target, knob)),
        };
    }

    pub(super) fn change_class(&mut self, change: ClassChange) {
        if let ClassChange::Define { class, .. } = &change {
            self.classes.insert(class.clone());
        }
        self.held_classes.change(change);
    }

    /// Fails if the case names a class that was never defined.
    pub(super) fn check_classes(&self, place: &str) -> Result<(), CaseError> {
        let unknown = self.counted.unknown_class(|class| self.classes.contains(class));
        unknown.map_or(Ok(()), |problem| Err(nonsense(place, problem)))
    }

    pub(super) fn exists(&self, target: Target) -> bool {
        match target {
            Target::Tier(_) => true,
            Target::Pod(id) => self.pods.values().any(|pod| pod.facts.id == id),
            Target::Container(id) => {
                self.pods.values().any(|pod| pod.facts.containers.iter().any(|container| container.id == id))
            }
        }
    }

    pub(super) fn pod_id(&self, name: &str, place: &str) -> Result<PodId, CaseError> {
        let pod = self.pods.get(name).ok_or_else(|| nonsense(place, format!("there is no pod `{name}`")))?;
        Ok(pod.facts.id)
    }

    pub(super) fn pod_name(&self, id: PodId) -> String {
        self.pod_names.get(&id).cloned().unwrap_or_else(|| format!("(no pod has the id {id})"))
    }

    pub(super) fn target_name(&self, target: Target) -> String {
        match target {
            Target::Tier(Tier::Guaranteed) => "tier kubepods".into(),
            Target::Tier(Tier::Burstable) => "tier burstable".into(),
            Target::Tier(Tier::BestEffort) => "tier besteffort".into(),
            Target::Pod(id) => format!("pod {}", self.pod_name(id)),
            Target::Container(id) => match self.container_names.get(&id) {
                Some(name) => format!("container {name}"),
                None => format!("(no container has the id {id})"),
            },
        }
    }

    pub(super) fn container_name(&self, id: ContainerId) -> String {
        self.container_names.get(&id).cloned().unwrap_or_else(|| format!("(no container has the id {id})"))
    }

    pub(super) fn started(&mut self, container: ContainerId, token: u64) {
        self.tokens.insert(container, token);
    }

    fn progress(&self, container: ContainerId, row: &ProgressRow) -> MigrationProgress {
        let failure = |(&pid, error): (&u32, &String)| ProcessFailure { pid, error: error.clone() };
        MigrationProgress {
            container,
            token: row.token.or_else(|| self.tokens.get(&container).copied()).unwrap_or(0),
            state: migration_state(&row.state).unwrap_or(MigrationState::Waiting),
            pages_found: row.pages_found,
            pages_moved: row.pages_moved,
            pages_failed: row.pages_failed.iter().map(|(errno, &pages)| (errno.clone(), pages)).collect(),
            pages_without_room: row.pages_without_room,
            failures: row.failures.iter().map(failure).collect(),
            why: row.why.clone(),
        }
    }

    /// The columns that the policy can read now.
    pub(super) fn columns(&self, exceptions: &[BandwidthRow], place: &str) -> Result<Columns, CaseError> {
        // The kubelet sets no quota on the tier.
        let tier = Bandwidth {
            target: Target::Tier(Tier::BestEffort),
            quota_usec: None,
            baseline_quota_usec: None,
            period_usec: kubelet::PERIOD_USEC,
        };
        let mut bandwidth = vec![tier];
        bandwidth.extend(self.pods.values().flat_map(|pod| pod.bandwidth.iter().copied()));
        for row in &mut bandwidth {
            row.quota_usec = match self.leases.get(&(row.target, CPU_QUOTA)) {
                Some(Value::Number(quota)) => u64::try_from(*quota).ok(),
                Some(Value::Max | Value::Shares(_) | Value::Cpus(_)) => None,
                None => row.baseline_quota_usec,
            };
        }
        for exception in exceptions {
            let position = bandwidth.iter().position(|row| self.target_name(row.target) == exception.target);
            let position = position.ok_or_else(|| nonsense(place, format!("`{}` has no row", exception.target)))?;
            match exception.quota_usec {
                Quota::Micros(micros) => bandwidth[position].quota_usec = Some(micros),
                Quota::Max => bandwidth[position].quota_usec = None,
                Quota::Unreadable => drop(bandwidth.remove(position)),
            }
        }
        let cpu = self.rows(&self.cpu, place, |container, row| row.of(container))?;
        let memory = self.rows(&self.memory, place, |container, row| row.of(container))?;
        let pressure = self.rows(&self.pressure, place, |container, row| row.of(container))?;
        let numa = self.rows(&self.numa, place, |container, row| NumaSample {
            container,
            identity: row.identity.unwrap_or(u64::from(container)),
            cpu_nodes: row.cpu_nodes.clone(),
            memory_nodes: row
                .memory_nodes
                .clone()
                .unwrap_or_else(|| self.numa_nodes.iter().map(|node| node.id).collect()),
            pages: row.pages.iter().map(|(&node, &pages)| NumaShare { node, pages }).collect(),
        })?;
        let migrations = self.rows(&self.migrations, place, |container, row| self.progress(container, row))?;
        for row in self.migrations.values() {
            migration_state(&row.state).ok_or_else(|| nonsense(place, format!("`{}` is no state", row.state)))?;
        }
        let numa_nodes = numa_nodes(&self.numa_nodes);
        if let Some(problem) = self.counted.slip() {
            return Err(nonsense(place, problem));
        }
        let is_known = |name: &&String| self.pod_names.values().any(|known| known == *name);
        if let Some(stranger) = self.pod_objects.keys().find(|name| !is_known(name)) {
            return Err(nonsense(place, format!("there is no pod `{stranger}`")));
        }
        let usual = PodObjectRow::default();
        let pod_object =
            |(name, pod): (&String, &Actor)| self.pod_objects.get(name).unwrap_or(&usual).facts(pod.facts.id);
        let container_usage = self.rows(&self.counted.containers, place, Counted::container)?;
        let mut columns = Columns {
            node: self.node,
            node_memory: self.node_memory,
            node_pressure: self.node_pressure,
            groups: self.group_use(place)?,
            applications: self.application_use(place)?,
            cpu_topology: self.topology(place)?,
            cpu_sets: self.sets(place)?,
            cpu,
            bandwidth,
            memory,
            pressure,
            numa_nodes,
            numa,
            migrations,
            container_usage,
            node_object: self.node_object.as_ref().map(NodeObjectRow::facts),
            pod_objects: self.pods.iter().map(pod_object).collect(),
            cluster_config: self.cluster_config.iter().map(|(name, row)| (name.clone(), row.key())).collect(),
            group_identity: self.group_identity,
            core_scheduling: self.core_scheduling,
            node_knobs: self.node_settings.states(),
            block_devices: self.block_io.devices.clone(),
            pod_volumes: self.volumes(place)?,
            ..Columns::default()
        };
        self.counted.show(&self.held_classes, &mut columns);
        let uid = |name: &str| match self.pods.get(name) {
            Some(actor) => Some(actor.facts.uid.clone()),
            None => uid(name).filter(|_| self.pod_names.values().any(|known| known == name)),
        };
        self.requests.show(&mut columns, uid).map_err(|problem| nonsense(place, problem))?;
        Ok(columns)
    }

    /// Volumes of existing pods. Rows of pods that are gone are skipped; rows of pods that never existed are errors.
    fn volumes(&self, place: &str) -> Result<Vec<IoVolume>, CaseError> {
        let mut volumes = Vec::new();
        for (row, device) in &self.block_io.volumes {
            match self.pods.get(&row.pod) {
                Some(pod) => volumes.push(IoVolume { pod: pod.facts.id, name: row.name.clone(), device: *device }),
                None if self.pod_names.values().any(|known| *known == row.pod) => {}
                None => return Err(nonsense(place, format!("there is no pod `{}`", row.pod))),
            }
        }
        Ok(volumes)
    }

    /// Use by groups. Rows of pods that are gone are skipped; rows of pods that never existed are errors.
    fn group_use(&self, place: &str) -> Result<Vec<GroupUse>, CaseError> {
        let mut samples = Vec::new();
        for (name, row) in &self.groups {
            let group = match (name.as_str(), tier(name), self.pods.get(name)) {
                ("outside", ..) => Group::Outside,
                (_, Some(tier), _) => Group::Tier(tier),
                (_, _, Some(pod)) => Group::Pod(pod.facts.id),
                _ if self.pod_names.values().any(|known| known == name) => continue,
                _ => {
                    let known = "kubepods, burstable, besteffort, outside and pods by namespace/name";
                    return Err(nonsense(place, format!("there is no group `{name}`; there are {known}")));
                }
            };
            samples.push(row.of(group));
        }
        samples.sort_by_key(|sample| sample.group);
        Ok(samples)
    }

    fn application_use(&self, place: &str) -> Result<Vec<ApplicationUse>, CaseError> {
        let row = |(name, row): (&String, &ApplicationRow)| {
            let qos = row.qos.as_deref().map(|word| qos_class(word, place)).transpose()?;
            let unknown = |word: &str| {
                nonsense(place, format!("`{word}` is no tier; there are kubepods, burstable and besteffort"))
            };
            let tier = row.tier.as_deref().map(|word| tier(word).ok_or_else(|| unknown(word))).transpose()?;
            Ok(row.of(name, qos, tier))
        };
        self.applications.iter().map(row).collect()
    }

    /// The machine's CPUs. CPUs of a container that is gone count as those of an unknown container.
    fn topology(&self, place: &str) -> Result<Option<Topology>, CaseError> {
        let Some(row) = &self.cpu_topology else { return Ok(None) };
        let mut exclusive = Vec::new();
        for own in &row.exclusive {
            let container = match &own.container {
                Some(name) => self.container_named(name, place)?,
                None => None,
            };
            exclusive.push(ExclusiveCpus { container, cpus: own.cpus.clone() });
        }
        let cpu = |row: &CpuPlaceRow| Cpu {
            id: row.id,
            core: row.core.unwrap_or(row.id),
            socket: row.socket,
            numa_node: row.numa_node,
            online: row.online.unwrap_or(true),
        };
        let cpus = row.cpus.iter().map(cpu).collect();
        Ok(Some(Topology { cpus, manager: row.manager.into(), reserved: row.reserved.clone(), exclusive }))
    }

    /// The container with this name; `None` if it is gone.
    fn container_named(&self, name: &str, place: &str) -> Result<Option<ContainerId>, CaseError> {
        let mut containers = self.pods.values().flat_map(|pod| &pod.facts.containers);
        match containers.find(|container| self.container_names.get(&container.id).is_some_and(|known| known == name)) {
            Some(container) => Ok(Some(container.id)),
            None if self.container_names.values().any(|known| known == name) => Ok(None),
            None => Err(nonsense(place, format!("there is no container `{name}`"))),
        }
    }

    /// CPUs in force. Rows of pods and containers that are gone are skipped; rows of those that never existed are errors.
    fn sets(&self, place: &str) -> Result<Vec<CpuSet>, CaseError> {
        let tiers = [Tier::Guaranteed, Tier::Burstable, Tier::BestEffort].map(Target::Tier);
        let mut sets = Vec::new();
        for (name, cpus) in &self.cpu_sets {
            let was_there = |known: &String| name.split_once(' ').is_some_and(|(_, rest)| rest == known);
            let target = match tiers.into_iter().find(|&tier| self.target_name(tier) == *name) {
                Some(tier) => tier,
                None => match self.named(name, place) {
                    Ok(target) => target,
                    Err(_) if self.pod_names.values().chain(self.container_names.values()).any(was_there) => continue,
                    Err(error) => return Err(error),
                },
            };
            sets.push(CpuSet { target, cpus: cpus.clone() });
        }
        sets.sort_by_key(|set| set.target);
        Ok(sets)
    }

    /// Samples of running containers. Rows of containers that are gone or do not run are skipped; rows of those that never existed are
    /// errors.
    fn rows<Row, Sample>(
        &self,
        rows: &BTreeMap<String, Row>,
        place: &str,
        sample: impl Fn(ContainerId, &Row) -> Sample,
    ) -> Result<Vec<Sample>, CaseError> {
        let mut samples = Vec::new();
        for (name, row) in rows {
            let running = self.pods.values().flat_map(|pod| &pod.facts.containers).find(|container| {
                container.state == ContainerState::Running && self.container_names.get(&container.id) == Some(name)
            });
            match running {
                Some(container) => samples.push(sample(container.id, row)),
                None if self.container_names.values().any(|known| known == name) => {}
                None => return Err(nonsense(place, format!("there is no container `{name}`"))),
            }
        }
        Ok(samples)
    }

    fn upsert_one(&mut self, pod: &PodDescription, place: &str) -> Result<PodFacts, CaseError> {
        let (namespace, name) =
            pod.name.split_once('/').ok_or_else(|| nonsense(place, format!("`{}` is no namespace/name", pod.name)))?;
        let id = match self.pods.get(&pod.name) {
            Some(actor) => actor.facts.id,
            None => next_id(&self.pod_names),
        };
        if let Some(twice) = twice(pod.containers.iter().map(|container| container.name.as_str())) {
            return Err(nonsense(place, format!("container {twice} of pod {} is there twice", pod.name)));
        }
        self.pod_names.insert(id, pod.name.clone());
        let mut containers = Vec::new();
        for container in &pod.containers {
            containers.push(self.container(&pod.name, container, place)?);
        }
        let declared_qos = pod.declared_qos.as_deref().map(|word| qos_class(word, place)).transpose()?;
        let kube_qos = pod.kube_qos.as_deref().map_or(Ok(KubeQos::Burstable), |word| kube_qos(word, place))?;
        let facts = PodFacts {
            id,
            namespace: namespace.into(),
            name: name.into(),
            uid: pod.uid.clone().or_else(|| uid(&pod.name)).unwrap_or_default(),
            declared_qos,
            qos: declared_qos.unwrap_or(match kube_qos {
                KubeQos::Guaranteed => QosClass::Lsr,
                KubeQos::Burstable => QosClass::Ls,
                KubeQos::BestEffort => QosClass::Be,
            }),
            kube_qos,
            priority: pod.priority,
            active: pod.active.unwrap_or(true),
            host_pid: pod.host_pid,
            static_pod: pod.static_pod,
            labels: pod.labels.clone().into_iter().collect(),
            containers,
            cpu_overhead_milli: pod.cpu_overhead_milli,
            memory_overhead_bytes: pod.memory_overhead_bytes,
            memory_request_bytes: pod.memory_request_bytes,
            memory_limit_bytes: pod.memory_limit_bytes,
            cpu_limit_milli: pod.cpu_limit_milli,
            config: serde_json::Value::Object(pod.config.clone()).to_string(),
            annotated: pod.annotated.unwrap_or(!pod.config.is_empty()),
        };
        self.pods.insert(pod.name.clone(), Actor { bandwidth: bandwidth(pod, &facts), facts: facts.clone() });
        self.drop_vanished();
        Ok(facts)
    }

    fn container(&mut self, pod: &str, facts: &ContainerFacts, place: &str) -> Result<Container, CaseError> {
        let name = format!("{pod}/{}", facts.name);
        let next = next_id(&self.container_names);
        let id = *self.container_ids.entry((name.clone(), facts.restarts)).or_insert(next);
        self.container_names.insert(id, name);
        Ok(Container {
            id,
            name: facts.name.clone(),
            kind: match facts.kind.as_deref() {
                None | Some("regular") => ContainerKind::Regular,
                Some("init") => ContainerKind::Init,
                Some("sidecar") => ContainerKind::Sidecar,
                Some(word) => return Err(nonsense(place, format!("`{word}` is no kind of container"))),
            },
            state: match facts.state.as_deref() {
                None | Some("running") => ContainerState::Running,
                Some("waiting") => ContainerState::Waiting,
                Some("terminated") => ContainerState::Terminated,
                Some(word) => return Err(nonsense(place, format!("`{word}` is no state of a container"))),
            },
            cpu_request_milli: facts.cpu_request_milli,
            cpu_limit_milli: facts.cpu_limit_milli,
            memory_request_bytes: facts.memory_request_bytes,
            memory_limit_bytes: facts.memory_limit_bytes,
            extended_resources: facts
                .extended_resources
                .iter()
                .map(|(name, facts)| ExtendedResource {
                    name: name.clone(),
                    request: facts.request,
                    limit: facts.limit,
                })
                .collect(),
            exclusive_cpus: facts.exclusive_cpus,
        })
    }

    fn drop_vanished(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        self.leases = leases.into_iter().filter(|((target, _), _)| self.exists(*target)).collect();
        let mut held = std::mem::take(&mut self.held_classes);
        held.retain(|target| self.exists(target));
        self.held_classes = held;
        let mut block_io = std::mem::take(&mut self.block_io);
        block_io.retain(|target| self.exists(target));
        self.block_io = block_io;
    }
}

fn migration_state(word: &str) -> Option<MigrationState> {
    let states = [
        ("waiting", MigrationState::Waiting),
        ("moving", MigrationState::Moving),
        ("paused", MigrationState::Paused),
        ("done", MigrationState::Done),
        ("failed", MigrationState::Failed),
        ("stopped", MigrationState::Stopped),
    ];
    states.into_iter().find(|(known, _)| *known == word).map(|(_, state)| state)
}

fn numa_nodes(rows: &[NumaNodeRow]) -> Vec<NumaNode> {
    let node = |row: &NumaNodeRow| {
        let memory_bytes = row.memory_bytes.unwrap_or(16 << 30);
        let available_bytes = row.available_bytes.unwrap_or(memory_bytes / 2);
        let distances = if row.distances.is_empty() {
            rows.iter().map(|other| if other.id == row.id { 10 } else { 20 }).collect()
        } else {
            row.distances.clone()
        };
        NumaNode {
            id: row.id,
            cpus: row.cpus.unwrap_or(2),
            memory_bytes,
            free_bytes: available_bytes,
            available_bytes,
            distances,
        }
    };
    rows.iter().map(node).collect()
}

/// The first name that occurs again.
fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

fn nonsense(place: &str, problem: String) -> CaseError {
    CaseError::Nonsense { place: place.into(), problem }
}

fn next_id(names: &BTreeMap<u32, String>) -> u32 {
    names.last_key_value().map_or(1, |(id, _)| id + 1)
}

fn tier(word: &str) -> Option<Tier> {
    match word {
        "kubepods" => Some(Tier::Guaranteed),
        "burstable" => Some(Tier::Burstable),
        "besteffort" => Some(Tier::BestEffort),
        _ => None,
    }
}

fn qos_class(word: &str, place: &str) -> Result<QosClass, CaseError> {
    match word {
        "LSE" => Ok(QosClass::Lse),
        "LSR" => Ok(QosClass::Lsr),
        "LS" => Ok(QosClass::Ls),
        "BE" => Ok(QosClass::Be),
        "SYSTEM" => Ok(QosClass::System),
        _ => Err(nonsense(place, format!("`{word}` is no QoS class"))),
    }
}

fn kube_qos(word: &str, place: &str) -> Result<KubeQos, CaseError> {
    match word {
        "Guaranteed" => Ok(KubeQos::Guaranteed),
        "Burstable" => Ok(KubeQos::Burstable),
        "BestEffort" => Ok(KubeQos::BestEffort),
        _ => Err(nonsense(place, format!("`{word}` is no QoS of Kubernetes"))),
    }
}

fn trigger(row: TriggerRow) -> Trigger {
    match row {
        TriggerRow::Throttling => Trigger::Throttling,
        TriggerRow::MemoryEvents => Trigger::MemoryEvents,
        TriggerRow::ContainerStarted => Trigger::ContainerStarted,
        TriggerRow::Pressure(row) => Trigger::Pressure(PressureTrigger {
            scope: match row.scope {
                ScopeWord::Node => PressureScope::Node,
                ScopeWord::Pod => PressureScope::Pod,
                ScopeWord::Container => PressureScope::Container,
            },
            resource: match row.resource {
                ResourceWord::Cpu => StalledResource::Cpu,
                ResourceWord::Memory => StalledResource::Memory,
                ResourceWord::Io => StalledResource::Io,
            },
            full: row.full,
            stall_usec: row.stall_usec.unwrap_or(STALL_USEC),
            window_usec: row.window_usec.unwrap_or(STALL_WINDOW_USEC),
        }),
    }
}

/// The bandwidth rows of a pod and its running containers: the quotas of the case, else what a kubelet writes.
fn bandwidth(pod: &PodDescription, facts: &PodFacts) -> Vec<Bandwidth> {
    let pod_period = pod.period_usec.unwrap_or(kubelet::PERIOD_USEC);
    let mut rows = Vec::new();
    let mut push = |target, said: Option<Quota>, limit: Option<u64>, period: u64| {
        let baseline = match said {
            Some(Quota::Micros(micros)) => Some(micros),
            Some(Quota::Max) => None,
            Some(Quota::Unreadable) => return,
            None => limit.map(|milli| kubelet::quota(milli, period)),
        };
        rows.push(Bandwidth { target, quota_usec: baseline, baseline_quota_usec: baseline, period_usec: period });
    };
    if facts.active {
        push(Target::Pod(facts.id), pod.quota_usec, kubelet::pod_limit_milli(facts), pod_period);
    }
    for (said, container) in pod.containers.iter().zip(&facts.containers) {
        if facts.active && container.state == ContainerState::Running {
            let limit = facts.cpu_limit_of(container);
            let period = said.period_usec.unwrap_or(pod_period);
            push(Target::Container(container.id), said.quota_usec, limit, period);
        }
    }
    rows
}
