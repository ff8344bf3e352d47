//! Cgroups for the demo and the colocation bench: created as the kubelet does, read every second, and removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};

use crate::cgroup::remove;

/// Where the system mounts its cgroups.
const MOUNT: &str = "/sys/fs/cgroup";
/// Prefix of the top cgroup. The process ID that follows tells running demos from killed ones.
const PREFIX: &str = "qosm-demo-";
/// The kernel's default CFS period, which the demo keeps.
const PERIOD_USEC: u64 = 100_000;

/// A pod with one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    /// Path of its tier below `kubepods`; empty for Guaranteed.
    pub(crate) tier: &'static str,
    /// UID of the pod.
    pub(crate) uid: &'static str,
    /// Name of the container.
    pub(crate) container: &'static str,
    /// CPU weight of pod and container as `cpu.shares` of cgroup v1, as the kubelet computes it from the request.
    pub(crate) shares: u64,
}

/// Cgroups of pods below a top cgroup, in each hierarchy that the demo needs.
#[derive(Debug)]
pub(crate) struct Groups {
    mounts: Mounts,
    name: String,
}

/// The cgroups of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Container<'g> {
    mounts: &'g Mounts,
    pod: PathBuf,
    path: PathBuf,
}

/// The hierarchies of this machine.
#[derive(Debug)]
enum Mounts {
    V1 { cpu: PathBuf, cpuacct: PathBuf, memory: Option<PathBuf>, cpuset: Option<PathBuf> },
    V2(PathBuf),
}

/// Counters and limits of a container at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// CPU time used since the cgroup was created.
    pub(crate) usage: Duration,
    /// CFS periods in which the container had something to run.
    pub(crate) periods: u64,
    /// Periods in which it used up its quota.
    pub(crate) throttled: u64,
    /// CFS quota for each period; `None` = unlimited.
    pub(crate) quota: Option<Duration>,
    /// CFS burst; `None` if the kernel does not support it.
    pub(crate) burst: Option<Duration>,
}

impl Groups {
    /// Creates the cgroups, after removing those of killed demos.
    ///
    /// # Errors
    ///
    /// If this process may not: it is not root, or cgroups are mounted read-only, as in most containers.
    pub(crate) fn make(pods: &[Pod]) -> Result<Self> {
        let mounts = Mounts::find()?;
        mounts.sweep();
        let groups = Self { name: format!("{PREFIX}{}", std::process::id()), mounts };
        for pod in pods {
            let container = groups.container(*pod);
            for mount in groups.mounts.all() {
                groups.mounts.make(mount, &container.path)?;
            }
            for group in [&container.pod, &container.path] {
                groups.mounts.weigh(group, pod.shares)?;
            }
            let tier = Path::new(&groups.name).join("kubepods").join(pod.tier);
            groups.mounts.weigh(&tier, pod.shares)?;
        }
        Ok(groups)
    }

    /// The groups of one of the pods.
    pub(crate) fn container(&self, pod: Pod) -> Container<'_> {
        let tier = PathBuf::from(&self.name).join("kubepods").join(pod.tier);
        let folder = tier.join(format!("pod{}", pod.uid));
        Container { mounts: &self.mounts, path: folder.join(pod.container), pod: folder }
    }

    /// The value of the agent's `--cgroup-root`, relative to the hierarchies' roots.
    pub(crate) fn root(&self) -> String {
        format!("/{}", self.name)
    }

    /// The cgroup version as text.
    pub(crate) fn version(&self) -> &'static str {
        match self.mounts {
            Mounts::V1 { .. } => "cgroup v1",
            Mounts::V2(_) => "cgroup v2",
        }
    }
}

impl Container<'_> {
    /// The container's cgroup in the CPU hierarchy.
    pub(crate) fn folder(&self) -> PathBuf {
        self.mounts.cpu().join(&self.path)
    }

    /// The `cgroup.procs` files of the container, through which a process joins it.
    pub(crate) fn procs(&self) -> Vec<PathBuf> {
        self.mounts.all().into_iter().map(|mount| mount.join(&self.path).join("cgroup.procs")).collect()
    }

    /// Limits pod and container as the kubelet does for `limits.cpu`. The pod comes first, because cgroup v1 refuses a child with a larger
    /// quota than its parent.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn limit(&self, quota: Duration) -> Result<()> {
        let usec = quota.as_micros();
        for group in [&self.pod, &self.path] {
            let (file, value) = match self.mounts {
                Mounts::V1 { cpu, .. } => (cpu.join(group).join("cpu.cfs_quota_us"), usec.to_string()),
                Mounts::V2(root) => (root.join(group).join("cpu.max"), format!("{usec} {PERIOD_USEC}")),
            };
            fs::write(&file, &value).with_context(|| format!("the kernel refused `{value}` in {}", file.display()))?;
        }
        Ok(())
    }

    /// Reads the container's counters and limits.
    ///
    /// # Errors
    ///
    /// When a file is gone or does not hold what the kernel documents.
    pub(crate) fn sample(&self) -> Result<Sample> {
        let folder = self.folder();
        let stat = read(&folder.join("cpu.stat"))?;
        let field = |name: &str| -> Result<u64> {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            value.with_context(|| format!("{}/cpu.stat has no {}", folder.display(), name.trim()))
        };
        let (periods, throttled) = (field("nr_periods ")?, field("nr_throttled ")?);
        let usec = |text: &str| text.trim().parse().ok().map(Duration::from_micros);
        Ok(match self.mounts {
            Mounts::V1 { cpuacct, .. } => {
                let nanos = read(&cpuacct.join(&self.path).join("cpuacct.usage"))?;
                let nanos = nanos.trim().parse().context("cpuacct.usage is no number")?;
                Sample {
                    usage: Duration::from_nanos(nanos),
                    periods,
                    throttled,
                    quota: usec(&read(&folder.join("cpu.cfs_quota_us"))?),
                    burst: read(&folder.join("cpu.cfs_burst_us")).ok().as_deref().and_then(usec),
                }
            }
            Mounts::V2(_) => Sample {
                usage: Duration::from_micros(field("usage_usec ")?),
                periods,
                throttled,
                quota: read(&folder.join("cpu.max"))?.split(' ').next().and_then(usec),
                burst: read(&folder.join("cpu.max.burst")).ok().as_deref().and_then(usec),
            },
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for mount in self.mounts.all() {
            if let Err(error) = remove(&mount.join(&self.name)) {
                eprintln!("    {error:#}");
            }
        }
    }
}

impl Mounts {
    fn find() -> Result<Self> {
        let mount = Path::new(MOUNT);
        if read(&mount.join("cgroup.controllers")).is_ok_and(|list| list.split_whitespace().any(|name| name == "cpu")) {
            return Ok(Self::V2(mount.to_path_buf()));
        }
        // If controllers share a hierarchy, the name of each is a symbolic link to it.
        let controller = |name: &str| Some(mount.join(name)).filter(|path| path.join("cgroup.procs").exists());
        match (controller("cpu"), controller("cpuacct")) {
            (Some(cpu), Some(cpuacct)) => {
                Ok(Self::V1 { cpu, cpuacct, memory: controller("memory"), cpuset: controller("cpuset") })
            }
            _ => bail!("{MOUNT} has neither cgroup v2 with the cpu controller nor the v1 hierarchies cpu and cpuacct"),
        }
    }

    fn cpu(&self) -> &Path {
        match self {
            Self::V1 { cpu, .. } => cpu,
            Self::V2(root) => root,
        }
    }

    fn all(&self) -> Vec<&Path> {
        match self {
            Self::V1 { cpu, cpuacct, memory, cpuset } => {
                let others = memory.iter().chain(cpuset).map(PathBuf::as_path);
                [cpu.as_path(), cpuacct.as_path()].into_iter().chain(others).collect()
            }
            Self::V2(root) => vec![root],
        }
    }

    /// Creates a cgroup and its parents.
    fn make(&self, mount: &Path, path: &Path) -> Result<()> {
        let mut folder = mount.to_path_buf();
        for part in path {
            let above = folder.clone();
            folder.push(part);
            if let Self::V2(_) = self {
                let file = above.join("cgroup.subtree_control");
                fs::write(&file, "+cpu +memory").with_context(|| format!("{} is not writable", file.display()))?;
                // Not every machine has this controller, and the demo does not need it.
                let _ = fs::write(&file, "+cpuset");
            }
            if folder.exists() {
                continue;
            }
            fs::create_dir(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
            if matches!(self, Self::V1 { cpuset: Some(cpuset), .. } if cpuset == mount) {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let value = read(&above.join(file))?;
                    fs::write(folder.join(file), value).with_context(|| format!("{}/{file}", folder.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Sets the weight of a cgroup for its request; on v2 by the formula of KEP-2254.
    fn weigh(&self, group: &Path, shares: u64) -> Result<()> {
        let (file, value) = match self {
            Self::V1 { cpu, .. } => (cpu.join(group).join("cpu.shares"), shares),
            Self::V2(root) => (root.join(group).join("cpu.weight"), 1 + shares.saturating_sub(2) * 9999 / 262_142),
        };
        fs::write(&file, value.to_string()).with_context(|| format!("{} is not writable", file.display()))
    }

    /// Removes the cgroups of demos that were killed.
    fn sweep(&self) {
        for mount in self.all() {
            for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse().ok());
                if let Some(owner) = owner.and_then(Pid::from_raw)
                    && test_kill_process(owner).is_err()
                    && let Err(error) = remove(&entry.path())
                {
                    eprintln!("    {error:#}");
                }
            }
        }
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}
