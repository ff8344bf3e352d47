//! One knob of one target: reading it, its support, and executing a step.

use std::io;

use qosm_model::knob::{IDLE_WEIGHT, Knob, Target, Value};
use qosm_model::numa::list_text;
use qosm_model::unit::Bytes;
use rustix::io::Errno;

use crate::backend::{Area, Backend as _, Beyond, Lowering, SlowWrite, join};
use crate::error::{self, HostError, errno_name};
use crate::knob_table::{self, Encoding, Group, KnobRow};
use crate::mounts::{CgroupVersion, Controller};
use crate::plan::Step;
use crate::probe::{BurstRule, Proof};
use crate::software_watermarks::DESCRIPTION;
use crate::targets::CgroupFile;
use crate::write_backoff::Refusal;
use crate::{Host, parse};

/// Whether a knob can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// The kernel has the knob.
    Native,
    /// The kernel has no such file; the host emulates it.
    Emulated {
        /// How the host emulates it.
        how: &'static str,
    },
    /// Not supported, or not at present.
    Unavailable {
        /// What is missing, or the kernel's error.
        why: String,
    },
}

impl Support {
    /// One word: `native`, `emulated` or `unavailable`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Emulated { .. } => "emulated",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

/// A knob's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobFile {
    /// Its name, e.g. `cpu.max`.
    pub file: &'static str,
    /// Its absolute path on the node, e.g. `/sys/fs/cgroup/cpu/kubepods/…/cpu.cfs_quota_us`.
    pub path: String,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// Written; the value that the kernel now returns.
    Done(Value),
    /// A thread that may stall is writing the value; [`Host::finished`] returns the result.
    Pending,
}

/// A slow write in progress.
pub(crate) struct PendingWrite {
    target: Target,
    cgroup: String,
    knob: Knob,
    value: Value,
    identity: Option<u64>,
}

impl Host {
    /// The current value of a knob; for an emulated knob, the value that was set.
    ///
    /// # Errors
    ///
    /// [`HostError::NotAttached`], [`HostError::Gone`], [`HostError::Unsupported`], [`HostError::Parse`], [`HostError::Read`].
    pub fn read(&mut self, target: Target, knob: Knob) -> Result<Value, HostError> {
        if knob.is_of_node() {
            return self.read_node_knob(knob);
        }
        if self.emulates(knob) {
            return self.software_watermark(target, knob);
        }
        if knob == Knob::CoreGroup {
            return self.read_core_group(target);
        }
        let row = knob_table::row(knob);
        let file = CgroupFile::Knob(knob);
        let length = self.read_file(target, file)?;
        let version = self.knob_version(row);
        match parse::value_of(knob, row, version, self.page(), &self.buffer[..length]) {
            Some(Value::Number(nodes)) if knob == Knob::CpusetMems => {
                // A list of all nodes is no restriction, whatever its spelling.
                let all = self.mems_above(target).and_then(|all| parse::numa::mask(&all));
                Ok(if all.is_some_and(|all| all & !nodes == 0) { Value::Max } else { Value::Number(nodes) })
            }
            // Likewise for CPUs on v2: a cgroup with processes whose own set was removed has such a list.
            Some(Value::Cpus(cpus)) if version == CgroupVersion::V2 && self.possible_cpus().is_subset(&cpus) => {
                Ok(Value::Max)
            }
            Some(printed) if knob == Knob::CpuWeight => Ok(self.weight_in_force(target, printed)),
            Some(value) => Ok(value),
            None => Err(self.garbled(target, file, length, knob.kind_name())),
        }
    }

    /// Whether a knob can be set on this target, proved by writing its current value, or by reading it where a write
    /// has side effects.
    pub fn support(&mut self, target: Target, knob: Knob) -> Support {
        match self.prove(target, knob) {
            Ok(()) if self.emulates(knob) => Support::Emulated { how: DESCRIPTION },
            Ok(()) => Support::Native,
            Err(HostError::Unsupported { why, .. }) => Support::Unavailable { why },
            Err(other) => Support::Unavailable { why: other.to_string() },
        }
    }

    fn prove(&mut self, target: Target, knob: Knob) -> Result<(), HostError> {
        self.usable(target, knob, None)?;
        let value = self.read(target, knob)?;
        let row = knob_table::row(knob);
        let proof = self.probe.knobs[knob_table::index(knob)];
        // Writing a quota refills run time, and writing `memory.high` may reclaim, even without a change. Writing a
        // node-wide knob makes the kernel compute its watermarks again.
        if matches!(proof, Proof::Untried | Proof::Missing)
            && !matches!(row.group, Group::Bandwidth | Group::Node)
            // The file may have no line for the device.
            && row.line().is_none()
            && !row.slow
            && !self.emulates(knob)
            && knob != Knob::CoreGroup
            && (knob, value) != (Knob::CpuWeight, IDLE_WEIGHT)
            // On v1, that would write the parent's list.
            && (knob, value) != (Knob::CpusetCpus, Value::Max)
        {
            self.write_value(target, knob, value).map_err(|source| self.refused(target, knob, value, source))?;
            self.probe.knobs[knob_table::index(knob)] = Proof::Works;
        }
        Ok(())
    }

    /// Refuses knobs that are known not to work, before reading anything.
    pub(crate) fn usable(&self, target: Target, knob: Knob, value: Option<Value>) -> Result<(), HostError> {
        let row = knob_table::row(knob);
        let file = CgroupFile::Knob(knob);
        if let Some(Refusal { value, errno, plans_left }) = self.write_backoff.refusal(target, knob, value) {
            let path = self.file_path_or_name(target, file);
            return Err(HostError::BackedOff { target, knob, value: Box::new(value), path, errno, plans_left });
        }
        let what = || row.file(self.knob_version(row)).to_owned();
        if !row.levels.contains(&target.level()) {
            let mut why = format!("there is none on the level of a {}", target.level().as_str());
            if let Some(reason) = row.not_elsewhere {
                why = format!("it is not set on the level of a {}: {reason}", target.level().as_str());
            }
            return Err(HostError::Unsupported { what: what(), why });
        }
        if let Some(why) = self.switched_off(knob) {
            return Err(HostError::Unsupported { what: what(), why });
        }
        // Leaving a group is always possible.
        if knob == Knob::CoreGroup
            && value != Some(Value::Number(0))
            && let Support::Unavailable { why } = self.core_group_support()
        {
            return Err(HostError::Unsupported { what: knob.to_string(), why });
        }
        if let Some(device) = knob.device().filter(|_| value.is_some()) {
            self.check_device(target, knob, device)?;
        }
        if let Proof::Refused(errno) = self.probe.knobs[knob_table::index(knob)] {
            let why = format!("this kernel has the file but refuses to have it written: {errno}");
            return Err(HostError::Unsupported { what: what(), why });
        }
        Ok(())
    }

    /// Why a knob with a node-wide switch has no effect: its switch is off.
    pub(crate) fn switched_off(&self, knob: Knob) -> Option<String> {
        const SWITCH: &str = "kernel/mm/pagecache_limit/enabled";
        if knob_table::row(knob).group != Group::PageCache {
            return None;
        }
        let text = self.backend.read_once(Area::Sys, SWITCH).ok()?;
        (parse::number(&text) == Some(0)).then(|| format!("/sys/{SWITCH} is 0: write 1 to it"))
    }

    /// A knob's file on this target, or the file through which it is emulated; `None` if the target is not attached or
    /// the controller not mounted.
    pub fn file(&self, target: Target, knob: Knob) -> Option<KnobFile> {
        if self.emulates(knob) {
            return self.software_watermark_file(target);
        }
        if knob == Knob::CoreGroup {
            return self.core_group_file(target);
        }
        let row = knob_table::row(knob);
        let path = self.file_path(target, CgroupFile::Knob(knob))?;
        Some(KnobFile { file: row.file(self.knob_version(row)), path })
    }

    /// The text that is written for a value: `-1`, `max`, `200000`; switches are `0` and `1`. The target makes no
    /// difference at present: a controller has one version for all targets.
    pub fn encode(&self, _target: Target, knob: Knob, value: Value) -> String {
        let row = knob_table::row(knob);
        let text = row.encode(self.knob_version(row), value);
        match knob.device() {
            Some(device) => format!("{device} {text}"),
            None => text,
        }
    }

    /// Writes one step and reads the value back. Another thread may lower `memory.high` below current use.
    ///
    /// # Errors
    /// [`HostError::Refused`] with the kernel's error, after which the host does not write the value (or the knob, if
    /// the kernel never accepted any value) for some plans; [`HostError::Gone`], [`HostError::Unsupported`],
    /// [`HostError::ReadOnly`], [`HostError::Busy`], [`HostError::NotAttached`], [`HostError::NotIdle`] for the weight
    /// of a cgroup that is not idle, and the errors of [`Host::read`] if the value cannot be read back.
    pub fn execute(&mut self, step: &Step) -> Result<Executed, HostError> {
        let Step { target, knob, to, .. } = *step;
        if self.emulates(knob) {
            return self.set_software_watermark(target, knob, to).map(Executed::Done);
        }
        if knob == Knob::CoreGroup {
            return self.write_core_group(target, to).map(Executed::Done);
        }
        if (knob, to) == (Knob::CpuWeight, IDLE_WEIGHT) {
            return self.take_idle_weight(target);
        }
        let row = knob_table::row(knob);
        let queued = self.is_under_way(target, knob);
        let falls = row.slow && self.would_reclaim(step);
        if queued || falls {
            if !self.write_slowly(target, knob, to, falls)? {
                return Ok(Executed::Pending);
            }
        } else {
            self.write_value(target, knob, to).map_err(|source| self.refused(target, knob, to, source))?;
        }
        self.accepted(target, knob, to);
        self.read(target, knob).map(Executed::Done)
    }

    /// Whether a slow write of this knob is in progress. The cgroup counts, not the target that it is attached as: the
    /// pending write must not overwrite a later value.
    pub(crate) fn is_under_way(&self, target: Target, knob: Knob) -> bool {
        let Some(attached) = self.targets.get(&target).filter(|_| !self.pending.is_empty()) else { return false };
        self.pending.values().any(|pending| (&*pending.cgroup, pending.knob) == (&*attached.path, knob))
    }

    /// Assigns pending writes in a cgroup to the target that it was last attached as.
    pub(crate) fn take_pending(&mut self, target: Target) {
        if self.pending.is_empty() {
            return;
        }
        let identity = self.identity(target);
        let Some(attached) = self.targets.get(&target) else { return };
        for pending in self.pending.values_mut() {
            if pending.cgroup == attached.path && pending.identity == identity {
                pending.target = target;
            }
        }
    }

    /// The slow writes in progress.
    pub fn under_way(&self) -> Vec<(Target, Knob)> {
        let mut under_way: Vec<_> = self.pending.values().map(|pending| (pending.target, pending.knob)).collect();
        under_way.sort_unstable();
        under_way.dedup();
        under_way
    }

    /// The slow writes that ended since the last call, with the value that the kernel now returns. A write with a later
    /// write of the same knob still in progress is left out; the last one is returned when it has ended. The simulation
    /// has none unless they are [stalled](crate::simulated::Simulation::stall_slow_writes).
    pub fn finished(&mut self) -> Vec<(Target, Knob, Result<Value, HostError>)> {
        let mut results = Vec::new();
        for (ticket, result) in self.backend.finished() {
            let Some(ended) = self.pending.remove(&ticket) else { continue };
            if self.pending.values().any(|later| (&later.cgroup, later.knob) == (&ended.cgroup, ended.knob)) {
                continue;
            }
            let PendingWrite { target, knob, value, identity, .. } = ended;
            let result = match result {
                _ if self.identity(target) != identity => {
                    Err(HostError::Gone { path: self.attached_path(target).unwrap_or_default().to_owned() })
                }
                Ok(()) => {
                    self.accepted(target, knob, value);
                    self.read(target, knob)
                }
                Err(source) => Err(self.refused(target, knob, value, source)),
            };
            results.push((target, knob, result));
        }
        results
    }

    fn write_value(&mut self, target: Target, knob: Knob, value: Value) -> io::Result<()> {
        let text = self.encode(target, knob, value);
        // On v1 a cgroup cannot follow its parent: write the parent's list instead. With an empty list the cgroup could have no processes.
        if (knob, value) == (Knob::CpusetCpus, Value::Max)
            && self.hierarchies.version(Controller::Cpuset) == Some(CgroupVersion::V1)
            && let Some(all) = self.cpus_above(target)
        {
            return self.write(target, knob, &all.to_string());
        }
        match self.write(target, knob, &text) {
            // A cgroup with processes needs nodes of its own, so write all of the parent's.
            Err(source) if (knob, value) == (Knob::CpusetMems, Value::Max) && error::is(&source, Errno::NOSPC) => {
                match self.mems_above(target) {
                    Some(all) => self.write(target, knob, &list_text(all)),
                    None => Err(source),
                }
            }
            // It needs CPUs of its own, too. On v2, write all possible CPUs, which include CPUs that come online later.
            Err(source) if (knob, value) == (Knob::CpusetCpus, Value::Max) && error::is(&source, Errno::NOSPC) => {
                self.write(target, knob, &self.possible_cpus().to_string())
            }
            written => written,
        }
    }

    fn would_reclaim(&mut self, step: &Step) -> bool {
        let Value::Number(bound) = step.to else { return false };
        if step.to >= step.from {
            return false;
        }
        let usage = self.read_number(step.target, CgroupFile::MemoryUsage, "the memory in use");
        !usage.is_ok_and(|usage| usage <= bound.unsigned_abs())
    }

    /// Returns `true` if the write has ended, `false` if it is in progress.
    fn write_slowly(&mut self, target: Target, knob: Knob, value: Value, falls: bool) -> Result<bool, HostError> {
        let row = knob_table::row(knob);
        let text = row.encode(self.knob_version(row), value);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let written = match self.place(target, knob) {
            Ok((area, path)) => {
                let lowering = if falls { self.lowering(target, knob, value) } else { None };
                self.backend.write_slow(area, &path, &text, lowering, ticket)
            }
            Err(source) => Err(source),
        };
        match written {
            Ok(SlowWrite::Done) => Ok(true),
            Ok(SlowWrite::Queued) => {
                let identity = self.identity(target);
                let cgroup = self.attached_path(target).unwrap_or_default().to_owned();
                self.pending.insert(ticket, PendingWrite { target, cgroup, knob, value, identity });
                Ok(false)
            }
            Ok(SlowWrite::Full) => {
                let path = self.file_path_or_name(target, CgroupFile::Knob(knob));
                Err(HostError::Busy { target, knob, path })
            }
            Err(source) => Err(self.refused(target, knob, value, source)),
        }
    }

    /// The steps for lowering a memory bound below current use.
    fn lowering(&self, target: Target, knob: Knob, value: Value) -> Option<Lowering> {
        let Value::Number(to) = value else { return None };
        let path = self.attached_path(target)?.to_owned();
        let usage = CgroupFile::MemoryUsage;
        let version = self.hierarchies.list.get(self.tree_with(usage)?)?.version;
        let beyond = match (knob, version) {
            (Knob::MemoryMax, CgroupVersion::V1) => Beyond::Refuses,
            (Knob::MemoryMax, CgroupVersion::V2) => Beyond::Kills,
            _ => Beyond::Throttles,
        };
        Some(Lowering { path, usage: usage.name(version), to: Bytes(to.unsigned_abs()), beyond })
    }

    fn write(&mut self, target: Target, knob: Knob, text: &str) -> io::Result<()> {
        let (area, path) = self.place(target, knob)?;
        self.backend.write(area, &path, text)
    }

    /// The file to write: never in a new cgroup that only has the name of the attached one.
    fn place(&self, target: Target, knob: Knob) -> io::Result<(Area, String)> {
        let row = knob_table::row(knob);
        if knob.is_of_node() {
            let (area, file) = self.node_file(row).ok_or(Errno::NOENT)?;
            return Ok((area, file.to_owned()));
        }
        let tree = self.tree_of(knob).ok_or(Errno::NOENT)?;
        let attached = self.targets.get(&target).ok_or(Errno::NOENT)?;
        if !self.is_same(target, tree) {
            return Err(Errno::NODEV.into());
        }
        let file = row.file(self.hierarchies.list[tree].version);
        Ok((Area::Cgroup(tree), join(&attached.path, file)))
    }

    fn accepted(&mut self, target: Target, knob: Knob, value: Value) {
        self.probe.knobs[knob_table::index(knob)] = Proof::Works;
        if self.probe.burst_rule == BurstRule::Unknown
            && matches!(knob, Knob::CfsQuota | Knob::CfsBurst)
            && self.burst_exceeds(target, knob, value)
        {
            self.probe.burst_rule = BurstRule::Unbounded;
        }
        if !self.write_backoff.is_empty() {
            self.reconsider(target, knob);
        }
        self.write_backoff.accepted(target, knob);
    }

    /// Retries refused knobs that may depend on the value that has just changed: of the same group of knobs, on the
    /// same cgroup, or on a cgroup above or below it.
    fn reconsider(&mut self, target: Target, knob: Knob) {
        let group = knob_table::row(knob).group;
        let Some(path) = self.attached_path(target).map(str::to_owned) else { return };
        let targets = &self.targets;
        self.write_backoff.reconsider(|other, of| {
            // The kernel accepts a weight once the device has an active cost model.
            if matches!((knob, of), (Knob::IoCostQos(_) | Knob::IoCostModel(_), Knob::IoWeight(_))) {
                return knob.device() == of.device();
            }
            if knob.is_of_node() || of.is_of_node() {
                return false;
            }
            let Some(other) = targets.get(&other) else { return true };
            knob_table::row(of).group == group && (is_below(&other.path, &path) || is_below(&path, &other.path))
        });
    }

    /// Whether the new value of the quota or the burst makes the burst larger than a limited quota.
    fn burst_exceeds(&mut self, target: Target, knob: Knob, value: Value) -> bool {
        let (quota, burst) = match knob {
            Knob::CfsQuota => (Ok(value), self.read(target, Knob::CfsBurst)),
            _ => (self.read(target, Knob::CfsQuota), Ok(value)),
        };
        matches!((quota, burst), (Ok(Value::Number(quota)), Ok(Value::Number(burst))) if burst > quota)
    }

    fn refused(&mut self, target: Target, knob: Knob, value: Value, source: io::Error) -> HostError {
        let row = knob_table::row(knob);
        if let Some(refusal) = knob.device().and_then(|device| self.refused_device(target, knob, device, &source)) {
            self.write_backoff.refused(target, knob, value, errno_name(&source));
            return refusal;
        }
        let Some(controller) = row.controller() else { return self.refused_node_knob(knob, value, source) };
        let file = CgroupFile::Knob(knob);
        let Some(attached) = self.targets.get(&target) else { return HostError::NotAttached { target } };
        let cgroup = attached.path.clone();
        let Some(tree) = self.hierarchies.of(controller) else {
            let why = format!("the controller `{controller}` is not mounted");
            return HostError::Unsupported { what: row.v2.to_owned(), why };
        };
        if error::is_absent(&source) {
            if !self.is_same(target, tree) {
                self.close_files(target);
                return HostError::Gone { path: cgroup };
            }
            if error::is(&source, Errno::NOENT) {
                let why = format!("there is no such file in cgroup `{cgroup}`; needs {}", row.kernel);
                return HostError::Unsupported { what: row.file(self.knob_version(row)).to_owned(), why };
            }
        }
        let path = self.file_path_or_name(target, file);
        if knob == Knob::MemoryMax && error::is(&source, Errno::BUSY) {
            let usage = self.read_number(target, CgroupFile::MemoryUsage, "the memory in use").unwrap_or(0);
            let stands = self.read(target, knob).unwrap_or(Value::Max);
            return HostError::InUse { target, path, limit: Box::new(value), usage, stands: Box::new(stands) };
        }
        if error::is(&source, Errno::ROFS) {
            return HostError::ReadOnly { path };
        }
        let learned = self.probe.burst_rule == BurstRule::Unknown
            && error::is(&source, Errno::INVAL)
            && matches!(knob, Knob::CfsQuota | Knob::CfsBurst)
            && self.burst_exceeds(target, knob, value);
        let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
        let errno = errno_name(&source);
        if learned {
            self.probe.burst_rule = BurstRule::BurstWithinQuota;
        } else if !passing.iter().any(|&passing| error::is(&source, passing)) {
            self.write_backoff.refused(target, knob, value, errno);
        }
        let value = row.encode(self.knob_version(row), value);
        HostError::Refused { target, knob, value, path, errno, source }
    }

    /// Version of the hierarchy of a knob; v2 if it is not mounted, and for node-wide knobs.
    pub fn version_of(&self, knob: Knob) -> CgroupVersion {
        self.knob_version(knob_table::row(knob))
    }

    pub(crate) fn knob_version(&self, row: &KnobRow) -> CgroupVersion {
        row.controller().and_then(|controller| self.hierarchies.version(controller)).unwrap_or(CgroupVersion::V2)
    }

    /// Size of a page in bytes, as a knob's value counts it.
    pub(crate) fn page(&self) -> i64 {
        i64::try_from(self.backend.page_size()).unwrap_or(i64::MAX).max(1)
    }

    /// The value that the kernel returns after this value is written.
    pub(crate) fn rounded(&self, row: &KnobRow, value: Value) -> Value {
        if row.encoding == Encoding::Bytes || row.line().is_some() { row.rounded(value, self.page()) } else { value }
    }
}

/// Whether a path equals `above` or is below it.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
