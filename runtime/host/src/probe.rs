//! Probes the kernel in a scratch cgroup: whether each knob accepts a write, and whether a burst may exceed the quota.
//! A file that exists may refuse every write, and kernels with the same version number differ.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use qosm_model::knob::Knob;
use rustix::io::Errno;

use crate::backend::{Area, Backend as _, join};
use crate::error::{self, errno_name};
use crate::knob_table::Group;
use crate::mounts::{CgroupVersion, Controller};
use crate::reclaim::worker::RECLAIM;
use crate::{Host, knob_table, parse};

/// The kernel's rule for a burst above the quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BurstRule {
    /// Mainline: `EINVAL` while the quota is limited, at writes of either.
    BurstWithinQuota,
    /// Alibaba kernels: a burst may exceed the quota.
    Unbounded,
    /// Unknown; the first such write decides.
    #[default]
    Unknown,
}

/// What the probe found out about a knob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Proof {
    #[default]
    Untried,
    Missing,
    Works,
    Refused(&'static str),
}

#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) burst_rule: BurstRule,
    pub(crate) knobs: [Proof; Knob::ALL.len()],
    /// Whether a cgroup accepts a write of `memory.reclaim`.
    pub(crate) reclaim: Proof,
    pub(crate) why: Option<String>,
}

impl Probe {
    /// Whether the probe had a scratch cgroup with its controllers.
    pub(crate) fn is_settled(&self) -> bool {
        self.why.is_none() && self.knobs[knob_table::index(Knob::CfsQuota)] != Proof::Missing
    }
}

const SCRATCH: &str = "qosm-probe-";

/// The name of the scratch cgroup. One process may have several hosts, mainly in tests; each uses its own scratch cgroup.
fn scratch_name(pid: u32) -> String {
    static HOSTS: AtomicU32 = AtomicU32::new(0);
    match HOSTS.fetch_add(1, Ordering::Relaxed) {
        0 => format!("{SCRATCH}{pid}"),
        number => format!("{SCRATCH}{pid}-{number}"),
    }
}

/// The smallest quota that the kernel accepts, so that it fits below the quotas of all ancestors.
const QUOTA: &str = "1000";
const MORE_THAN_QUOTA: &str = "2000";

impl Host {
    /// Creates the scratch cgroup beside kubepods, probes, and removes it. Without CAP_DAC_OVERRIDE even the owner of a
    /// hierarchy's root may not write to it (mode 0555): then the scratch cgroup is created within kubepods, under a
    /// name that the kubelet does not use.
    pub(crate) fn probe_kernel(&mut self) {
        let kubepods = self.layout.kubepods.clone();
        let beside = kubepods.rsplit_once('/').map_or("", |(above, _)| above);
        let beside = if self.exists(beside) { beside.to_owned() } else { String::new() };
        self.probe_in(&beside);
        if self.probe.why.is_some() && self.exists(&kubepods) {
            self.probe_in(&kubepods);
        }
    }

    fn probe_in(&mut self, above: &str) {
        let path = join(above, &scratch_name(self.backend.pid()));
        let mut probe = Probe { burst_rule: self.probe.burst_rule, ..Probe::default() };
        let trees = self.hierarchies.carrying(&[Controller::Cpu, Controller::Memory, Controller::Cpuset]);
        for tree in self.trees.clone() {
            self.sweep(tree, above);
        }
        // If the kubelet has no cgroups in a hierarchy (e.g. cpuset), the scratch cgroup cannot be created there either.
        let has_place = |tree: &usize| above.is_empty() || self.backend.inode(Area::Cgroup(*tree), above).is_ok();
        let trees: Vec<usize> = trees.into_iter().filter(has_place).collect();
        for &tree in &trees {
            match self.backend.make(Area::Cgroup(tree), &path) {
                Err(refusal) if refusal.kind() != io::ErrorKind::AlreadyExists => {
                    let place = self.directory_path(tree, &path);
                    probe.why = Some(format!("no scratch cgroup {place}: {}", errno_name(&refusal)));
                }
                _ => {}
            }
        }
        for row in &knob_table::TABLE {
            if let Some(tree) = self.tree_of(row.knob)
                && self.backend.inode(Area::Cgroup(tree), &path).is_ok()
            {
                probe.knobs[knob_table::index(row.knob)] = self.try_knob(tree, &path, row);
            }
        }
        probe.reclaim = self.try_reclaim(&path);
        if let Some(rule) = self.try_burst(&path) {
            probe.burst_rule = rule;
        }
        for &tree in &trees {
            // The cgroup is empty, so removal should succeed. The next start sweeps it otherwise.
            let _ = self.backend.remove(Area::Cgroup(tree), &path);
        }
        self.probe = probe;
    }

    /// Removes scratch cgroups of agents that were killed while probing.
    fn sweep(&mut self, tree: usize, above: &str) {
        for name in self.backend.directories(Area::Cgroup(tree), above).unwrap_or_default() {
            let owner = name.strip_prefix(SCRATCH).and_then(|owner| owner.split('-').next());
            let Some(pid) = owner.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
            if self.backend.inode(Area::Proc, &pid.to_string()).is_err() {
                let _ = self.backend.remove(Area::Cgroup(tree), &join(above, &name));
            }
        }
    }

    /// Probes a knob by writing its current value.
    fn try_knob(&mut self, tree: usize, path: &str, row: &knob_table::KnobRow) -> Proof {
        let version = self.hierarchies.list[tree].version;
        let file = join(path, row.file(version));
        let text = match self.backend.read_once(Area::Cgroup(tree), &file) {
            Ok(text) => text,
            Err(refusal) if error::is_absent(&refusal) => return Proof::Missing,
            Err(refusal) => return Proof::Refused(errno_name(&refusal)),
        };
        // A new cgroup has no line of a device to write again.
        if row.line().is_some() {
            return Proof::Works;
        }
        // A refusal may only mean that the node's switch is off; the plan turns it on before setting an identity.
        if row.group == Group::Identity {
            return Proof::Works;
        }
        let Some(value) = parse::knob(row.encoding, version, self.page(), &text) else { return Proof::Untried };
        match self.backend.write(Area::Cgroup(tree), &file, &row.encode(version, value)) {
            Ok(()) => Proof::Works,
            // An agent in another PID namespace swept this scratch cgroup as a leftover.
            Err(refusal) if error::is_absent(&refusal) => Proof::Untried,
            Err(refusal) => Proof::Refused(errno_name(&refusal)),
        }
    }

    /// Requests a reclaim of 0 bytes, which changes nothing.
    fn try_reclaim(&mut self, path: &str) -> Proof {
        let Some(tree) = self.hierarchies.of(Controller::Memory) else { return Proof::Missing };
        match self.backend.write(Area::Cgroup(tree), &join(path, RECLAIM), "0") {
            Ok(()) => Proof::Works,
            Err(refusal) if error::is_absent(&refusal) => Proof::Missing,
            Err(refusal) => Proof::Refused(errno_name(&refusal)),
        }
    }

    fn try_burst(&mut self, path: &str) -> Option<BurstRule> {
        let tree = self.hierarchies.of(Controller::Cpu)?;
        let version = self.hierarchies.list[tree].version;
        let file = |knob| join(path, knob_table::row(knob).file(version));
        let (quota, burst) = (file(Knob::CfsQuota), file(Knob::CfsBurst));
        let unlimited = if version == CgroupVersion::V1 { "-1" } else { "max" };
        let area = Area::Cgroup(tree);
        self.backend.write(area, &quota, QUOTA).ok()?;
        let within = self.backend.write(area, &burst, QUOTA);
        let beyond = self.backend.write(area, &burst, MORE_THAN_QUOTA);
        let _ = self.backend.write(area, &burst, "0");
        let _ = self.backend.write(area, &quota, unlimited);
        match (within, beyond) {
            (Ok(()), Ok(())) => Some(BurstRule::Unbounded),
            (Ok(()), Err(refusal)) if error::is(&refusal, Errno::INVAL) => Some(BurstRule::BurstWithinQuota),
            _ => None,
        }
    }
}
