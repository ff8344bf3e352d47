//! The node as the sources describe it, overlaid with what the container runtime reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_cluster::node_report::ControllerAnswer;
use qosm_engine::Interface;
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::layering::{ClusterConfig, GoodTexts};
use qosm_model::object::PodObject;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;
use qosm_model::unit::Bytes;
use qosm_nri::{Adjustment, RunningContainer};

use crate::applications::{ApplicationReading, Applications};
use crate::good_texts::SavedTexts;
use crate::nri::RuntimeLink;
use crate::objects::Objects;
use crate::runtime_containers::RuntimeContainers;
use crate::sources::Sources;
use crate::table::PodTable;

/// The node as the sources and the container runtime describe it.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The sources, overlaid with what the container runtime reports.
    sources: Sources,
    /// The pods as the sources list them.
    listed: Vec<Pod>,
    runtime: RuntimeContainers,
    runtime_link: RuntimeLink,
    /// Columns that follow from the sources.
    objects: Objects,
    applications: Applications,
    saved_texts: SavedTexts,
}

impl Observed {
    /// Begins with the last good texts that an earlier agent saved.
    pub(crate) fn new(saved_texts: SavedTexts) -> Self {
        let mut observed = Self::default();
        observed.objects.begin_with_texts(saved_texts.of_cluster());
        observed.saved_texts = saved_texts;
        observed
    }

    /// Saves the last good texts of the cluster ConfigMap and of policies, if they have changed.
    pub(crate) fn save_texts(&mut self, policies: &BTreeMap<String, GoodTexts>) {
        self.saved_texts.write(self.objects.good_texts(), policies);
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// State of the connection to the container runtime.
    pub(crate) fn runtime_link(&self) -> &RuntimeLink {
        &self.runtime_link
    }

    pub(crate) fn memory_allocatable(&self) -> Option<Bytes> {
        self.sources.node.memory_allocatable
    }

    /// The controller's answer to the node's last report.
    pub(crate) fn answer(&self) -> Option<&ControllerAnswer> {
        self.sources.answer.as_ref()
    }

    /// Remembers the pods that the sources list, and returns the sources overlaid with what the container runtime reports.
    pub(crate) fn list(&mut self, mut sources: Sources) -> Sources {
        self.listed.clone_from(&sources.pods);
        self.runtime.lay_over(&mut sources.pods);
        sources
    }

    /// The last sources, overlaid with what the container runtime reports now.
    pub(crate) fn list_again(&self) -> Sources {
        let mut sources = Sources { pods: self.listed.clone(), ..self.sources.clone() };
        self.runtime.lay_over(&mut sources.pods);
        sources
    }

    /// Takes sources as [`Self::list`] returns them. Returns the columns that changed and that no other notification covers.
    pub(crate) fn replace(&mut self, sources: Sources) -> Vec<Interface> {
        let changed = self.objects.update(&self.sources, &sources);
        self.applications.list(self.objects.applications().to_vec());
        self.sources = sources;
        changed
    }

    /// Adds a problem until the sources change, unless it is already listed.
    pub(crate) fn add_problem(&mut self, problem: Problem) {
        if !self.sources.problems.contains(&problem) {
            self.sources.problems.push(problem);
        }
    }

    /// The node; what its object does not state is filled in from the machine.
    pub(crate) fn node_object(&mut self, cpus: u32, memory: Option<Bytes>) -> Arc<Node> {
        self.objects.node(&self.sources.node, cpus, memory)
    }

    /// All pods, as policies see them.
    pub(crate) fn pod_objects(&mut self, pods: &PodTable) -> Arc<[PodObject]> {
        self.objects.pods(pods)
    }

    /// What applications beside Kubernetes have used, and whether others than before cannot be read.
    pub(crate) fn read_applications(&mut self, host: &mut Host, pods: &mut PodTable) -> (ApplicationReading, bool) {
        let reading = self.applications.read(host, pods);
        (reading, self.objects.set_unread_applications(self.applications.unread()))
    }

    /// Has the paths of applications' cgroups worked out again, because a tier was opened.
    pub(crate) fn tier_opened(&mut self) {
        self.applications.tiers_changed();
    }

    /// Detaches a cgroup that was attached for an application. Returns `false` if the target is not an application's.
    pub(crate) fn give_way(&mut self, host: &mut Host, target: Target) -> bool {
        self.applications.give_way(host, target)
    }

    /// The cluster ConfigMap.
    pub(crate) fn cluster_config(&self) -> Arc<ClusterConfig> {
        self.objects.config()
    }
}

/// Updates from the container runtime by NRI.
impl Observed {
    pub(crate) fn take_link(&mut self, link: RuntimeLink) {
        match &link {
            RuntimeLink::Connected { runtime, .. } => self.runtime.connected(runtime),
            RuntimeLink::Off | RuntimeLink::Absent { .. } | RuntimeLink::Away { .. } => self.runtime.disconnected(),
        }
        self.runtime_link = link;
    }

    /// Replaces the known containers by those that run.
    pub(crate) fn synchronize(&mut self, host: &mut Host, running: &[RunningContainer]) {
        host.forget_container_cgroups();
        for (id, cgroup) in self.runtime.synchronize(running) {
            host.name_container_cgroup(id, cgroup);
        }
    }

    /// Takes a container that is about to start. Returns whether its pod is known; the source lists an unknown one later.
    pub(crate) fn start(&mut self, host: &mut Host, container: &RunningContainer) -> bool {
        if let Some((id, cgroup)) = self.runtime.start(container) {
            host.name_container_cgroup(id, cgroup);
        }
        self.listed.iter().any(|pod| pod.uid == container.pod.uid)
    }

    pub(crate) fn stop(&mut self, host: &mut Host, id: &str) {
        host.forget_container_cgroup(&self.runtime.stop(id));
    }
}

/// Logs what another plug-in changed. This is no conflict: qosm writes to the cgroup, and the plug-in's value is the baseline.
pub(crate) fn log_adjustment(Adjustment { container, fields }: &Adjustment) {
    tracing::info!(
        pod = format!("{}/{}", container.pod.namespace, container.pod.name),
        container = container.name,
        fields = fields.join(", "),
        "another NRI plug-in changed values of the kubelet; the changed values are the baseline of qosm's settings"
    );
}
