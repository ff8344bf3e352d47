//! Counters of a cgroup: how the kernel's files show them on v1 and v2. Reading, and beside it the same files as a simulated kernel
//! prints them.

use qosm_model::column::{CpuCounters, MemoryCounters, Stall};
use qosm_model::knob::Target;
use qosm_model::node::{GroupCounters, GroupMemory};
use qosm_model::pod::ContainerId;
use qosm_model::unit::{Bytes, Micros};

use crate::backend::Area;
use crate::error::HostError;
use crate::mounts::{CgroupVersion, Controller};
use crate::targets::CgroupFile;
use crate::{Host, parse};

/// CPU time that a container used beyond its quota, as bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstCounters {
    /// Number of periods with a burst.
    pub nr_bursts: u64,
    /// Total CPU time of bursts.
    pub burst: Micros,
}

impl BurstCounters {
    /// Parses `cpu.stat`, whose unit on v1 is nanoseconds.
    fn of(text: &[u8]) -> Option<Self> {
        let [nr_bursts, micros, nanos] = parse::keyed(text, ["nr_bursts", "burst_usec", "burst_time"]);
        let burst = micros.or(nanos.map(|nanos| nanos / 1000)).map(Micros)?;
        Some(Self { nr_bursts: nr_bursts?, burst })
    }
}

/// Makes an unreadable counter `None`: the kernel may lack it. Only a missing cgroup is an error.
fn known<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error @ (HostError::Gone { .. } | HostError::NotAttached { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

impl Host {
    /// CPU time and throttling of a container, including all cgroups below it. v1: `cpuacct.usage` and `cpu.stat`, in
    /// nanoseconds; v2: `cpu.stat`.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`], [`HostError::NotAttached`], [`HostError::Unsupported`] without the controller, and
    /// [`HostError::Parse`] if a counter is missing, as in a v2 cgroup without the cpu controller.
    pub fn cpu_counters(&mut self, id: ContainerId) -> Result<CpuCounters, HostError> {
        let length = self.read_file(Target::Container(id), CgroupFile::CpuStat)?;
        self.counters_of(id, length)
    }

    /// The same as [`Self::cpu_counters`], and the CPU time used in bursts beyond the quota; `None` if the kernel does
    /// not count it (before Linux 5.14).
    ///
    /// # Errors
    ///
    /// As [`Self::cpu_counters`].
    pub fn cpu_and_burst_counters(
        &mut self,
        id: ContainerId,
    ) -> Result<(CpuCounters, Option<BurstCounters>), HostError> {
        let length = self.read_file(Target::Container(id), CgroupFile::CpuStat)?;
        let bursts = BurstCounters::of(&self.buffer[..length]);
        Ok((self.counters_of(id, length)?, bursts))
    }

    /// Parses `cpu.stat`, which the caller has read, and on v1 reads the CPU time from another file.
    fn counters_of(&mut self, id: ContainerId, length: usize) -> Result<CpuCounters, HostError> {
        let target = Target::Container(id);
        let text = &self.buffer[..length];
        let unified_usage = self.hierarchies.version(Controller::Cpuacct) == Some(CgroupVersion::V2);
        if self.hierarchies.version(Controller::Cpu) == Some(CgroupVersion::V2) && unified_usage {
            let keys = ["usage_usec", "nr_periods", "nr_throttled", "throttled_usec"];
            let [Some(usage), Some(nr_periods), Some(nr_throttled), Some(throttled)] = parse::keyed(text, keys) else {
                return Err(self.garbled(target, CgroupFile::CpuStat, length, "the counters of usage and throttling"));
            };
            return Ok(CpuCounters { usage: Micros(usage), nr_periods, nr_throttled, throttled: Micros(throttled) });
        }
        let throttling = match self.hierarchies.version(Controller::Cpu) {
            Some(CgroupVersion::V2) => parse::keyed(text, ["nr_periods", "nr_throttled", "throttled_usec"]),
            _ => {
                let [periods, throttled, nanos] = parse::keyed(text, ["nr_periods", "nr_throttled", "throttled_time"]);
                [periods, throttled, nanos.map(|nanos| nanos / 1000)]
            }
        };
        let [Some(nr_periods), Some(nr_throttled), Some(throttled)] = throttling else {
            return Err(self.garbled(target, CgroupFile::CpuStat, length, "the counters of throttling"));
        };
        let length = self.read_file(target, CgroupFile::CpuUsage)?;
        let text = &self.buffer[..length];
        let usage = if unified_usage {
            parse::keyed(text, ["usage_usec"])[0]
        } else {
            parse::number(text).map(|nanos| nanos / 1000)
        };
        let Some(usage) = usage else {
            return Err(self.garbled(target, CgroupFile::CpuUsage, length, "the CPU time used"));
        };
        Ok(CpuCounters { usage: Micros(usage), nr_periods, nr_throttled, throttled: Micros(throttled) })
    }

    /// Memory in use of a container, including all cgroups below it, and the number of its processes that the OOM
    /// killer ended. Does not read the composition of the memory, for which the kernel would sum the counters of all
    /// CPUs.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`].
    pub fn memory_in_use(&mut self, id: ContainerId) -> Result<(Bytes, u64), HostError> {
        let target = Target::Container(id);
        let usage = self.read_number(target, CgroupFile::MemoryUsage, "the memory in use")?;
        let unified = self.has_unified_memory();
        let length = self.read_file(target, if unified { CgroupFile::MemoryEvents } else { CgroupFile::MemoryOom })?;
        let [oom_kills] = parse::keyed(&self.buffer[..length], ["oom_kill"]);
        Ok((Bytes(usage), oom_kills.unwrap_or(0)))
    }

    /// Memory of a container, including all cgroups below it. v1 does not count throttling above `memory.high`, so the
    /// count is 0, as is `oom_kill` on kernels before 4.13.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`].
    pub fn memory_counters(&mut self, id: ContainerId) -> Result<MemoryCounters, HostError> {
        let target = Target::Container(id);
        let unified = self.has_unified_memory();
        let usage = self.read_number(target, CgroupFile::MemoryUsage, "the memory in use")?;
        let keys = if unified {
            ["anon", "file", "inactive_file"]
        } else {
            ["total_rss", "total_cache", "total_inactive_file"]
        };
        let length = self.read_file(target, CgroupFile::MemoryStat)?;
        let [Some(anon), Some(file), Some(inactive_file)] = parse::keyed(&self.buffer[..length], keys) else {
            return Err(self.garbled(
                target,
                CgroupFile::MemoryStat,
                length,
                "the sizes of anonymous memory and page cache",
            ));
        };
        let (high_events, max_events, oom_kills) = if unified {
            let length = self.read_file(target, CgroupFile::MemoryEvents)?;
            let [Some(high), Some(max), oom_kill] = parse::keyed(&self.buffer[..length], ["high", "max", "oom_kill"])
            else {
                return Err(self.garbled(target, CgroupFile::MemoryEvents, length, "the counts of events"));
            };
            (high, max, oom_kill.unwrap_or(0))
        } else {
            let failures = self.read_number(target, CgroupFile::MemoryFailures, "a count")?;
            let length = self.read_file(target, CgroupFile::MemoryOom)?;
            (0, failures, parse::keyed(&self.buffer[..length], ["oom_kill"])[0].unwrap_or(0))
        };
        Ok(MemoryCounters {
            usage: Bytes(usage),
            anon: Bytes(anon),
            file: Bytes(file),
            inactive_file: Bytes(inactive_file),
            high_events,
            max_events,
            oom_kills,
        })
    }

    /// What a tier or a pod has used since its cgroup was created, and its current memory. Counters that the kernel
    /// lacks, or that cannot be read, are `None`. The counts of the memory limit and the OOM killer cover the cgroup
    /// alone on v1, and also the cgroups below it on v2.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`] and [`HostError::NotAttached`].
    pub fn group_counters(&mut self, target: Target) -> Result<GroupCounters, HostError> {
        let (cpu_usage, cpu_throttled) = self.group_cpu(target)?;
        let (max_events, oom_kills) = self.group_events(target)?;
        Ok(GroupCounters {
            cpu_usage,
            cpu_throttled,
            cpu_pressure: known(self.stall(target, CgroupFile::CpuPressure))?,
            memory: self.group_memory(target)?,
            max_events,
            oom_kills,
        })
    }

    fn group_cpu(&mut self, target: Target) -> Result<(Option<Micros>, Option<Micros>), HostError> {
        let unified = |host: &Self, controller| host.hierarchies.version(controller) == Some(CgroupVersion::V2);
        let (cpu, usage) = (unified(self, Controller::Cpu), unified(self, Controller::Cpuacct));
        let mut used = None;
        let throttled = known(self.read_file(target, CgroupFile::CpuStat))?.and_then(|length| {
            let text = &self.buffer[..length];
            if cpu {
                let [usage_usec, throttled] = parse::keyed(text, ["usage_usec", "throttled_usec"]);
                used = usage_usec.filter(|_| usage);
                return throttled;
            }
            parse::keyed(text, ["throttled_time"])[0].map(|nanos| nanos / 1000)
        });
        if used.is_none() {
            used = known(self.read_file(target, CgroupFile::CpuUsage))?.and_then(|length| {
                let text = &self.buffer[..length];
                if usage {
                    parse::keyed(text, ["usage_usec"])[0]
                } else {
                    parse::number(text).map(|nanos| nanos / 1000)
                }
            });
        }
        Ok((used.map(Micros), throttled.map(Micros)))
    }

    fn group_memory(&mut self, target: Target) -> Result<Option<GroupMemory>, HostError> {
        let Some(usage) = known(self.read_number(target, CgroupFile::MemoryUsage, "the memory in use"))? else {
            return Ok(None);
        };
        let keys = self.page_cache_keys();
        let stat = known(self.read_file(target, CgroupFile::MemoryStat))?;
        Ok(stat.and_then(|length| {
            let [Some(active), Some(inactive)] = parse::keyed(&self.buffer[..length], keys) else { return None };
            Some(GroupMemory { usage: Bytes(usage), active_file: Bytes(active), inactive_file: Bytes(inactive) })
        }))
    }

    fn group_events(&mut self, target: Target) -> Result<(Option<u64>, Option<u64>), HostError> {
        if self.has_unified_memory() {
            let events = known(self.read_file(target, CgroupFile::MemoryEvents))?;
            let counts = events.map(|length| parse::keyed(&self.buffer[..length], ["max", "oom_kill"]));
            return Ok(counts.map_or((None, None), |[max, kills]| (max, kills)));
        }
        let failures = known(self.read_number(target, CgroupFile::MemoryFailures, "a count"))?;
        let oom = known(self.read_file(target, CgroupFile::MemoryOom))?;
        Ok((failures, oom.and_then(|length| parse::keyed(&self.buffer[..length], ["oom_kill"])[0])))
    }

    fn has_unified_memory(&self) -> bool {
        self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2)
    }

    fn page_cache_keys(&self) -> [&'static str; 2] {
        if self.has_unified_memory() {
            ["active_file", "inactive_file"]
        } else {
            ["total_active_file", "total_inactive_file"]
        }
    }

    /// Memory of all processes: that of the memory hierarchy's root. cgroup v2 has no total for the real root, so this
    /// is the sum of page cache, anonymous memory and, if counted, kernel memory. `None` if the kernel does not account
    /// the root, as on v2 before Linux 5.12.
    pub fn root_memory(&mut self) -> Option<GroupMemory> {
        let tree = self.hierarchies.of(Controller::Memory)?;
        let unified = self.has_unified_memory();
        let keys = self.page_cache_keys();
        let length = self.read_kept(|files| &mut files.root_stat, Area::Cgroup(tree), "memory.stat").ok()?;
        let text = &self.buffer[..length];
        let [Some(active), Some(inactive)] = parse::keyed(text, keys) else { return None };
        let [anon, file, kernel] = parse::keyed(text, ["anon", "file", "kernel"]);
        let usage = if unified {
            // A root as seen within a container is an ordinary cgroup to the kernel, and has `memory.current`.
            let current = self.read_kept(|files| &mut files.root_usage, Area::Cgroup(tree), "memory.current").ok();
            current
                .and_then(|length| parse::number(&self.buffer[..length]))
                .or_else(|| anon?.checked_add(file?)?.checked_add(kernel.unwrap_or(0)))
        } else {
            let usage = self.read_kept(|files| &mut files.root_usage, Area::Cgroup(tree), "memory.usage_in_bytes").ok();
            usage.and_then(|length| parse::number(&self.buffer[..length]))
        };
        Some(GroupMemory { usage: Bytes(usage?), active_file: Bytes(active), inactive_file: Bytes(inactive) })
    }
}

fn line(number: u64) -> String {
    format!("{number}\n")
}

/// A file with the stall times of one resource.
pub(crate) fn pressure_text(stall: Stall) -> String {
    let line = |kind, total: Micros| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", total.0);
    line("some", stall.some) + &line("full", stall.full)
}

/// `cpu.stat`.
pub(crate) fn cpu_stat(version: CgroupVersion, counters: CpuCounters) -> String {
    let CpuCounters { usage, nr_periods, nr_throttled, throttled } = counters;
    let throttling = format!("nr_periods {nr_periods}\nnr_throttled {nr_throttled}\n");
    match version {
        CgroupVersion::V1 => {
            let nanos = throttled.0.saturating_mul(1000);
            format!("{throttling}throttled_time {nanos}\nnr_bursts 0\nburst_time 0\n")
        }
        CgroupVersion::V2 => {
            let time = cpu_time_v2(usage);
            format!("{time}{throttling}throttled_usec {}\nnr_bursts 0\nburst_usec 0\n", throttled.0)
        }
    }
}

/// `cpu.stat` on v2 without the cpu controller.
pub(crate) fn cpu_time_v2(Micros(usage): Micros) -> String {
    format!("usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\nnice_usec 0\n")
}

/// The memory files of a container.
pub(crate) fn memory_files(version: CgroupVersion, counters: MemoryCounters) -> Vec<(&'static str, String)> {
    let MemoryCounters { usage, anon, file, inactive_file, high_events, max_events, oom_kills } = counters;
    match version {
        CgroupVersion::V1 => vec![
            ("memory.usage_in_bytes", line(usage.0)),
            (
                "memory.stat",
                format!(
                    "cache 0\nrss 0\nhierarchical_memory_limit 9223372036854771712\ntotal_cache {}\ntotal_rss {}\n\
                     total_rss_huge 0\ntotal_inactive_file {}\ntotal_active_file 0\n",
                    file.0, anon.0, inactive_file.0
                ),
            ),
            ("memory.failcnt", line(max_events)),
            ("memory.oom_control", format!("oom_kill_disable 0\nunder_oom 0\noom_kill {oom_kills}\n")),
        ],
        CgroupVersion::V2 => vec![
            ("memory.current", line(usage.0)),
            (
                "memory.stat",
                format!(
                    "anon {}\nfile {}\nkernel 0\ninactive_anon 0\nactive_anon 0\ninactive_file {}\nactive_file 0\n",
                    anon.0, file.0, inactive_file.0
                ),
            ),
            (
                "memory.events",
                format!("low 0\nhigh {high_events}\nmax {max_events}\noom 0\noom_kill {oom_kills}\noom_group_kill 0\n"),
            ),
        ],
    }
}

/// The content of a file, on v1 and on v2.
pub(crate) struct Versions(Option<String>, Option<String>);

impl Versions {
    pub(crate) fn of(self, version: CgroupVersion) -> String {
        let text = if version == CgroupVersion::V1 { self.0 } else { self.1 };
        text.unwrap_or_default()
    }
}

/// The files of a tier or pod with these counters. An empty file means that the value cannot be read.
pub(crate) fn group_files(counters: GroupCounters) -> Vec<(&'static str, Versions)> {
    let GroupCounters { cpu_usage, cpu_throttled, cpu_pressure, memory, max_events, oom_kills } = counters;
    let cpu = |usage, throttled| CpuCounters { usage, throttled, ..CpuCounters::default() };
    let both = |text: Option<String>| Versions(text.clone(), text);
    let bytes = memory.map(|memory| line(memory.usage.0));
    let stat_v1 = |memory: GroupMemory| {
        let cache = memory.active_file.0.saturating_add(memory.inactive_file.0);
        let (active, inactive) = (memory.active_file.0, memory.inactive_file.0);
        format!("cache 0\ntotal_cache {cache}\ntotal_inactive_file {inactive}\ntotal_active_file {active}\n")
    };
    let events = max_events.zip(oom_kills);
    vec![
        (
            "cpu.stat",
            Versions(
                cpu_throttled.map(|throttled| cpu_stat(CgroupVersion::V1, cpu(Micros(0), throttled))),
                cpu_usage.map(|usage| match cpu_throttled {
                    Some(throttled) => cpu_stat(CgroupVersion::V2, cpu(usage, throttled)),
                    None => cpu_time_v2(usage),
                }),
            ),
        ),
        ("cpuacct.usage", both(cpu_usage.map(|usage| line(usage.0.saturating_mul(1000))))),
        ("cpu.pressure", both(cpu_pressure.map(pressure_text))),
        ("memory.usage_in_bytes", both(bytes.clone())),
        ("memory.current", both(bytes)),
        ("memory.stat", Versions(memory.map(stat_v1), memory.map(memory_stat_v2))),
        ("memory.failcnt", both(max_events.map(line))),
        (
            "memory.oom_control",
            both(oom_kills.map(|kills| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"))),
        ),
        (
            "memory.events",
            both(events.map(|(max, kills)| format!("low 0\nhigh 0\nmax {max}\noom 0\noom_kill {kills}\n"))),
        ),
    ]
}

fn memory_stat_v2(memory: GroupMemory) -> String {
    let cache = memory.active_file.0.saturating_add(memory.inactive_file.0);
    let (anon, active, inactive) = (memory.usage.0.saturating_sub(cache), memory.active_file.0, memory.inactive_file.0);
    format!("anon {anon}\nfile {cache}\ninactive_file {inactive}\nactive_file {active}\n")
}

/// The files of a memory hierarchy's root.
pub(crate) fn root_memory_files(version: CgroupVersion, memory: Option<GroupMemory>) -> Vec<(&'static str, String)> {
    let files = GroupCounters { memory, ..GroupCounters::default() };
    let wanted: &[&str] = match version {
        CgroupVersion::V1 => &["memory.usage_in_bytes", "memory.stat"],
        CgroupVersion::V2 => &["memory.stat"],
    };
    let files = group_files(files).into_iter().filter(|(file, _)| wanted.contains(file));
    files.map(|(file, text)| (file, text.of(version))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_counted_in_either_unit_or_not_at_all() {
        let counted = Some(BurstCounters { nr_bursts: 3, burst: Micros(45) });
        for (text, expected) in [
            ("usage_usec 9\nnr_bursts 3\nburst_usec 45\n", counted),
            ("nr_periods 9\nnr_bursts 3\nburst_time 45999\n", counted),
            ("nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n", None),
            ("nr_bursts 3\n", None),
        ] {
            assert_eq!(BurstCounters::of(text.as_bytes()), expected, "{text}");
        }
    }
}
