//! Places pods on CPUs: pinned pods on those that a scheduler (or, without one, this node) chose for them; all other pods share the rest.
//!
//! The core is pure. Reading order: [`request`] (annotations of pods, labels of the node), [`placement`] (which pods are pinned; a choice
//! lasts as long as its pod), [`mod@choose`] (which CPUs lie close together), [`pools`] (the CPUs that remain to be shared), [`mod@assign`]
//! (the CPUs of each pod). The host writes the sets to the kernel in the right order, for either version of cgroups.
//!
//! ```
//! use cpu_sets::pick::machine;
//! use cpu_topology::placement::{Machine, Placements, Wish};
//!
//! // Two NUMA nodes of four cores with two threads.
//! let cpus = machine(2, 4, 2);
//! let on = Machine { cpus: &cpus, ..Machine::default() };
//! let redis = Wish { id: 1, uid: "7f0c".into(), cpu_milli: Some(4000), ..Wish::default() };
//! let pins = Placements::default().place(&on, &[redis], true);
//! assert_eq!(pins[&1].cpus().map(ToString::to_string), Some("0-3".to_owned()), "whole cores of one NUMA node");
//! ```

pub mod assign;
pub mod choose;
pub mod config;
pub mod placement;
pub mod pools;
mod protocol;
pub mod request;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use cpu_sets::{CpuSet, RESOURCE_STATUS};
use qosm_sdk::{Description, EventKind, Host, Level, NoConfig, Pod, PodId, Policy, Rejection, Target, Tick};

use crate::assign::{Assigned, Node, Share, assign, pinned};
use crate::choose::{Ground, choose};
use crate::config::Settings;
use crate::placement::{Machine, Pin, Placements, Why, Wish};
use crate::pools::{Pools, Taken};
use crate::request::{BindPolicy, Spec};
use crate::sources::Sources;

qosm_sdk::export!(CpuTopology);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct CpuTopology {
    settings: Settings,
    sources: Sources,
    placements: Placements,
    is_restored: bool,
    saved: Vec<u8>,
    /// The CPUs that this node chose for a reservation by quantity.
    reserved: CpuSet,
    /// Whether all pods have been seen; `false` until the first evaluation has placed pods.
    has_looked: bool,
    /// Findings that were logged and still apply.
    told: BTreeSet<String>,
    /// Events that were emitted for pods and still apply.
    events: BTreeMap<PodId, String>,
}

impl Policy for CpuTopology {
    type Config = Settings;
    type PodConfig = NoConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, settings: Settings) -> Result<(), String> {
        self.settings = settings;
        if !std::mem::replace(&mut self.is_restored, true) {
            self.saved = host.load_state();
            match Placements::restore(&self.saved) {
                Ok(placements) => self.placements = placements,
                Err(error) => host.log(Level::Warn, &format!("{error}: pods get other CPUs than they had")),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        self.sources.update_pods(upserted.into_iter().map(|pod| pod.facts), removed);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        self.sources.read(host);
        if self.sources.cpus.is_empty() {
            host.keep_all();
            return Ok(());
        }
        let system = self.sources.system.excluded();
        let mut findings = self.sources.faults();
        let wishes = self.sources.wishes(self.settings.choose);
        let kubelets = self.kubelets(&wishes);
        let reserved = self.reserved(&kubelets, &wishes, &mut findings);
        let kept = kubelets.union(&reserved).union(&system).union(&self.sources.reserved);
        let machine = Machine { cpus: &self.sources.cpus, kept, rules: self.sources.rules };
        let pins = self.placements.place(&machine, &wishes, self.has_looked);
        self.has_looked = true;

        let pods = self.sources.pods();
        let (shared_with_batch, exclusive) = pinned(&pods, &pins);
        let taken = Taken { by_kubelet: kubelets, shared_with_batch, exclusive, reserved, system };
        let node = Node {
            online: self.sources.cpus.iter().map(|cpu| cpu.id).collect(),
            pools: Pools::of(&self.sources.cpus, &taken),
            system: self.sources.system.cpus.clone(),
            manager: self.sources.manager,
            be_cpu_manager: self.settings.be_cpu_manager,
            holds_pools: self.settings.pools,
        };
        let mut events = BTreeMap::new();
        for (id, pod) in &pods {
            let pin = pins.get(id);
            let faults = self.sources.faults_of(*id).cloned();
            let unmet = match pin {
                Some(Pin::None(why)) => Some(event(*why)),
                None if self.settings.choose && self.sources.asks_in_vain(*id) => Some(event(Why::Class)),
                _ => None,
            };
            if let Some(message) = &unmet {
                host.remark(Target::Pod(*id), "cpuset.cpus", message);
            }
            let messages: Vec<String> = faults.chain(unmet).collect();
            if !messages.is_empty() {
                events.insert(*id, messages.join("; "));
            }
            // A guess could take a pod away from the CPUs that the scheduler gave it.
            if self.sources.is_unknown(*id) {
                self.keep(host, *id);
                continue;
            }
            match assign(pod, pin, &node) {
                Assigned::Pinned(cpus) => self.pin(host, *id, &cpus, pin),
                Assigned::Shared(cpus, share) => self.set(host, *id, &cpus, &share.to_string()),
                Assigned::Nothing(share) => {
                    findings.insert(format!(
                        "pod {} keeps the CPUs that it has: of the {share} none is left",
                        self.sources.name(*id)
                    ));
                    self.keep(host, *id);
                    // The quota is lifted only while the CPUs are the limit.
                    if share != Share::Given {
                        for target in self.with_containers(*id) {
                            host.release_quota(target);
                        }
                    }
                }
                Assigned::Left => {}
            }
        }
        self.tell(host, findings, events);
        self.save(host);
        Ok(())
    }
}

/// Maximum number of events per evaluation that the host accepts.
const EVENTS: usize = 256;
/// Maximum length of an event's message in characters; the host accepts 4096 bytes.
const MESSAGE_CHARS: usize = 1000;

/// Cuts a message, which holds what a pod's owner wrote.
fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

fn event(why: Why) -> String {
    format!("it has no CPUs of its own: {why}")
}

impl CpuTopology {
    /// CPUs that the kubelet gave to pods exclusively. A pod that the scheduler gave other CPUs leaves the kubelet's, if its annotation is
    /// believed.
    fn kubelets(&self, wishes: &[Wish]) -> CpuSet {
        let given = |pod: PodId| wishes.iter().find(|wish| wish.id == pod && !wish.given.is_empty());
        let Sources { reservation, system, reserved, .. } = &self.sources;
        let is_chosen = reservation.cpus.is_empty() && reservation.cpu_milli > 0;
        let kept = if is_chosen { &self.reserved } else { &reservation.cpus };
        let kept = kept.union(&system.excluded()).union(reserved);
        let mut kubelets = self.sources.kubelets(|pod| given(pod).is_some());
        // A pod whose annotation is not believed keeps the kubelet's CPUs, and no other annotation may name those.
        loop {
            let kept = kept.union(&kubelets);
            let is_believed = |wish: &Wish| wish.disbelief(&kept).is_none();
            let more = self.sources.kubelets(|pod| given(pod).is_some_and(is_believed)).union(&kubelets);
            if more == kubelets {
                return kubelets;
            }
            kubelets = more;
        }
    }

    /// CPUs kept from pods: those that the node's annotation names, or as many as it reserves, chosen close together. CPUs of pinned pods
    /// are chosen only if there are too few others, and a choice stays while it spares pinned pods and has the right number.
    fn reserved(&mut self, kubelets: &CpuSet, wishes: &[Wish], findings: &mut BTreeSet<String>) -> CpuSet {
        let reservation = &self.sources.reservation;
        let count = usize::try_from(reservation.cpu_milli.div_ceil(1000)).unwrap_or(usize::MAX);
        if !reservation.cpus.is_empty() || count == 0 {
            return reservation.cpus.clone();
        }
        let online: CpuSet = self.sources.cpus.iter().map(|cpu| cpu.id).collect();
        let allowed = online.difference(kubelets).difference(&self.sources.system.excluded());
        let unpinned = allowed.difference(&self.placements.pinned(wishes));
        if self.reserved.len() == count && self.reserved.is_subset(&unpinned) {
            return self.reserved.clone();
        }
        let among = |free: CpuSet| {
            let strategy = self.sources.rules.strategy;
            let ground = Ground { machine: &self.sources.cpus, free, avoided: CpuSet::default(), strategy };
            choose(&ground, Spec { bind: BindPolicy::FullPCpus, ..Spec::default() }, count)
        };
        let chosen = among(unpinned).or_else(|_| among(allowed)).unwrap_or_else(|refusal| {
            findings.insert(format!(
                "{}m of CPU are reserved on the node and are kept from no pod: {refusal}",
                reservation.cpu_milli
            ));
            CpuSet::default()
        });
        self.reserved.clone_from(&chosen);
        chosen
    }

    fn pin<H: Host>(&self, host: &mut H, pod: PodId, cpus: &CpuSet, pin: Option<&Pin>) {
        let by = match pin {
            Some(Pin::Given(_)) => format!("annotation {RESOURCE_STATUS}"),
            _ => "chosen by this node".to_owned(),
        };
        let reason = format!("CPUs {cpus} are its own: {by}");
        self.set(host, pod, cpus, &reason);
        if self.settings.lift_quota {
            let lifted = format!("pinned to CPUs {cpus}, which are its limit");
            for target in self.with_containers(pod) {
                host.set_quota(target, None, &lifted);
            }
        }
    }

    fn set<H: Host>(&self, host: &mut H, pod: PodId, cpus: &CpuSet, reason: &str) {
        let cpus: Vec<u32> = cpus.iter().collect();
        for target in self.targets(pod) {
            host.set_cpus(target, &cpus, reason);
        }
    }

    /// Keeps all that the pod and its containers have.
    fn keep<H: Host>(&self, host: &mut H, pod: PodId) {
        self.with_containers(pod).for_each(|target| host.keep(target));
    }

    fn with_containers(&self, pod: PodId) -> impl Iterator<Item = Target> {
        std::iter::once(Target::Pod(pod)).chain(self.targets(pod))
    }

    fn targets(&self, pod: PodId) -> Vec<Target> {
        self.sources.running(pod).into_iter().map(Target::Container).collect()
    }

    /// Logs new findings and emits new events. If there are more than the host takes, the rest follows in the next evaluation.
    fn tell<H: Host>(&mut self, host: &mut H, findings: BTreeSet<String>, events: BTreeMap<PodId, String>) {
        for news in findings.difference(&self.told) {
            host.log(Level::Warn, news);
        }
        self.told = findings;
        self.events.retain(|pod, _| events.contains_key(pod));
        let is_new = |(pod, message): &(PodId, String)| self.events.get(pod) != Some(message);
        let news: Vec<_> = events.into_iter().filter(is_new).take(EVENTS).collect();
        for (pod, message) in news {
            host.emit(pod, EventKind::Warning, "CPUsNotAssigned", &cut(&message));
            self.events.insert(pod, message);
        }
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        let is_fresh = self.placements == Placements::default();
        if is_fresh && self.saved.is_empty() {
            return;
        }
        let bytes = self.placements.save();
        if bytes != self.saved {
            match host.save_state(&bytes) {
                Ok(()) => self.saved = bytes,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}
