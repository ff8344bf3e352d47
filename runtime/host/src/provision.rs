//! Creates a pod's cgroups as a kubelet would: for hosts without a kubelet, and for the simulation.

use qosm_model::pod::{Container, ContainerCgroup, ContainerState, Moment, Pod};
use qosm_model::unit::{Bytes, MilliCpu};
use rustix::io::Errno;

use crate::backend::{AnyBackend, Area, Backend as _, join};
use crate::error::{self, HostError};
use crate::layout::RuntimeId;
use crate::mounts::{CgroupVersion, Controller};
use crate::{Host, targets, weight};

/// The kubelet's default period (`cpuCFSQuotaPeriod`), in microseconds.
const PERIOD: u64 = 100_000;
/// The shortest quota that the kernel accepts, in microseconds.
const MIN_QUOTA: u64 = 1000;

/// The CPU and memory settings that a kubelet writes for one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    cpu_request: MilliCpu,
    cpu_limit: Option<MilliCpu>,
    memory_limit: Option<Bytes>,
}

impl Bounds {
    /// The settings of a container. Without its own limit it gets that of its pod.
    ///
    /// Kubernetes: KEP-2837, `getCPULimit` and `getMemoryLimit` of `pkg/kubelet/kuberuntime/kuberuntime_container_linux.go`.
    fn of(pod: &Pod, container: &Container) -> Self {
        let own = Self::of_its_own(container);
        let request = container.cpu_request.or(if own.cpu_limit.is_none() { pod.cpu_limit } else { None });
        Self {
            cpu_request: request.unwrap_or_default(),
            cpu_limit: own.cpu_limit.or(pod.cpu_limit.filter(|limit| limit.0 > 0)),
            memory_limit: own.memory_limit.or(pod.memory_limit.filter(|limit| limit.0 > 0)),
        }
    }

    fn of_its_own(container: &Container) -> Self {
        Self {
            cpu_request: container.cpu_request.unwrap_or_default(),
            cpu_limit: container.cpu_limit.filter(|limit| limit.0 > 0),
            memory_limit: container.memory_limit.filter(|limit| limit.0 > 0),
        }
    }

    /// The settings of a pod, with the peak of its init containers and its overhead: on v1 the kernel refuses an init container a
    /// quota above that of its pod.
    fn of_pod(pod: &Pod) -> Self {
        Self {
            cpu_request: pod.cpu_requested(Moment::Now),
            cpu_limit: pod.cpu_limited(Moment::Now),
            memory_limit: pod.memory_limited(Moment::Now),
        }
    }

    fn quota(self) -> Option<u64> {
        self.cpu_limit.map(|limit| (limit.0.saturating_mul(PERIOD) / 1000).max(MIN_QUOTA))
    }

    fn shares(self) -> i64 {
        weight::requested_shares(self.cpu_request)
    }
}

impl Host {
    /// Creates the missing cgroups of a pod and of its running containers, with the CPU and memory limits of the
    /// specification. Never creates cgroups that a manifest binds to, nor, outside a simulation, those that a runtime
    /// creates. Returns `true` if it created any.
    ///
    /// # Errors
    ///
    /// As [`Host::create`]; cgroups created before the error stay. [`HostError::Bound`] is the first limit that the kernel refuses; the
    /// other limits are written and the other cgroups created.
    pub fn provision(&mut self, pod: &Pod) -> Result<bool, HostError> {
        if !pod.active {
            return Ok(false);
        }
        let mut made = false;
        let mut written = Ok(());
        let above = self.pod_path(pod);
        if pod.cgroup.is_none() && !self.exists(&above) && self.makes_below(pod) {
            self.create(&above)?;
            written = self.write_bounds(&above, Bounds::of_pod(pod));
            made = true;
        }
        for container in pod.containers.iter().filter(|container| container.state == ContainerState::Running) {
            let Some(path) = self.made_path(&above, container)? else { continue };
            if !self.exists(&path) {
                self.create(&path)?;
                written = written.and(self.write_bounds(&path, Bounds::of(pod, container)));
                made = true;
            }
        }
        written.map(|()| made)
    }

    /// The cgroups that [`Host::provision`] would create for a pod, including missing ancestors, parents first.
    ///
    /// # Errors
    ///
    /// As [`Host::provision`] for a container without a known cgroup name.
    pub fn unprovisioned(&self, pod: &Pod) -> Result<Vec<String>, HostError> {
        let mut missing: Vec<String> = Vec::new();
        let above = self.pod_path(pod);
        let mut wanted = Vec::new();
        if pod.active && pod.cgroup.is_none() && self.makes_below(pod) {
            wanted.push(above.clone());
        }
        for container in &pod.containers {
            if pod.active && container.state == ContainerState::Running {
                wanted.extend(self.made_path(&above, container)?);
            }
        }
        for path in wanted {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            for part in ends.map(|end| &path[..end]) {
                if !self.exists(part) && !missing.iter().any(|known| known == part) {
                    missing.push(part.to_owned());
                }
            }
        }
        Ok(missing)
    }

    /// Writes changed limits of a specification, as a kubelet does when it resizes a pod in place.
    ///
    /// # Errors
    ///
    /// [`HostError::Bound`] is the first limit that the kernel refuses; the others are written.
    pub fn resize(&mut self, pod: &Pod) -> Result<(), HostError> {
        let above = self.pod_path(pod);
        if pod.cgroup.is_some() || !self.exists(&above) {
            return Ok(());
        }
        // Increases must start with the pod, decreases with its containers: on v1 the kernel keeps children within
        // their parent. The direction may differ between knobs, so the pod is tried first and last.
        let first = self.write_bounds(&above, Bounds::of_pod(pod));
        let mut written = Ok(());
        for container in &pod.containers {
            if let Some(path) = self.made_path(&above, container)?
                && self.exists(&path)
            {
                written = written.and(self.write_bounds(&path, Bounds::of(pod, container)));
            }
        }
        match first {
            Ok(()) => written,
            Err(_) => written.and(self.write_bounds(&above, Bounds::of_pod(pod))),
        }
    }

    /// Removes the cgroups that [`Host::provision`] created.
    ///
    /// # Errors
    ///
    /// [`HostError::Remove`] while a cgroup contains processes.
    pub fn deprovision(&mut self, pod: &Pod) -> Result<(), HostError> {
        let above = self.pod_path(pod);
        for container in &pod.containers {
            if let Some(path) = self.made_path(&above, container)? {
                self.remove(&path)?;
            }
        }
        if pod.cgroup.is_none() { self.remove(&above) } else { Ok(()) }
    }

    fn makes_below(&self, pod: &Pod) -> bool {
        pod.containers.iter().any(|container| match container.cgroup {
            ContainerCgroup::Named(_) => true,
            ContainerCgroup::Runtime(_) | ContainerCgroup::Unknown => self.is_simulated(),
            ContainerCgroup::Bound(_) => false,
        })
    }

    /// Path of a container's cgroup; `None` for cgroups that another program creates.
    fn made_path(&self, above: &str, container: &Container) -> Result<Option<String>, HostError> {
        match &container.cgroup {
            ContainerCgroup::Named(name) => targets::clean(&join(above, name)).map(Some),
            ContainerCgroup::Bound(path) if self.is_simulated() => targets::clean(path).map(Some),
            ContainerCgroup::Runtime(text) if self.is_simulated() => {
                let id = RuntimeId::parse(text).map_err(|why| HostError::ContainerId {
                    container: container.name.clone(),
                    id: text.clone(),
                    why,
                })?;
                let (driver, _) = self.kubepods();
                Ok(id.names(driver).first().map(|name| join(above, name)))
            }
            _ => Ok(None),
        }
    }

    /// Whether this is a simulated node.
    pub fn is_simulated(&self) -> bool {
        matches!(self.backend, AnyBackend::Simulated(_))
    }

    /// Writes all limits, and returns the first that the kernel refuses.
    fn write_bounds(&mut self, path: &str, bounds: Bounds) -> Result<(), HostError> {
        let mut files: Vec<(usize, &str, String)> = Vec::new();
        if let Some(tree) = self.hierarchies.of(Controller::Cpu) {
            match self.hierarchies.list[tree].version {
                CgroupVersion::V1 => {
                    files.push((tree, "cpu.shares", bounds.shares().to_string()));
                    let quota = bounds.quota().map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
                    files.push((tree, "cpu.cfs_quota_us", quota));
                }
                CgroupVersion::V2 => {
                    files.push((tree, "cpu.weight", weight::stretched(bounds.shares()).to_string()));
                    let quota = bounds.quota().map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                    files.push((tree, "cpu.max", format!("{quota} {PERIOD}")));
                }
            }
        }
        if let Some(tree) = self.hierarchies.of(Controller::Memory) {
            let bytes = bounds.memory_limit.map(|limit| limit.0.to_string());
            match self.hierarchies.list[tree].version {
                CgroupVersion::V1 => {
                    files.push((tree, "memory.limit_in_bytes", bytes.unwrap_or_else(|| "-1".to_owned())));
                }
                CgroupVersion::V2 => files.push((tree, "memory.max", bytes.unwrap_or_else(|| "max".to_owned()))),
            }
        }
        let mut written = Ok(());
        for (tree, file, value) in files {
            let name = join(path, file);
            match self.backend.write(Area::Cgroup(tree), &name, &value) {
                Ok(()) => {}
                // A simulation may lack the file.
                Err(source) if error::is(&source, Errno::NOENT) => {}
                Err(source) => {
                    let path = self.directory_path(tree, &name);
                    written = written.and(Err(HostError::Bound { path, value, source }));
                }
            }
        }
        written
    }
}
