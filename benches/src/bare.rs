//! The files that a CPU Burst tick reads, read without anything else: the yardstick. [`TickFiles::check`] counts the agent's
//! system calls, so that the list is what the tick does.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_agent::config::DriftConfig;
use qosm_host::{CgroupVersion, Controller, Host};
use qosm_model::pod::{Pod, Tier};

/// The files of the ticks of a whole round: counters at each tick, quotas and held knobs in turns, as an agent looks at them that hears
/// of others' writes.
pub struct TickFiles {
    turns: Vec<Vec<PathBuf>>,
}

/// A turn's files with their descriptors open, as the host keeps them.
pub struct KeptFiles {
    turns: Vec<Vec<usize>>,
    files: Vec<File>,
    buffer: Vec<u8>,
}

impl TickFiles {
    /// The files for these pods, one container in each, where CPU Burst holds a burst on every group and no quota.
    ///
    /// # Errors
    ///
    /// When a group or a hierarchy is not there.
    pub fn of(host: &Host, pods: &[Pod]) -> anyhow::Result<Self> {
        let facts = host.facts();
        let find = |controller: Controller| -> anyhow::Result<(PathBuf, CgroupVersion)> {
            let fact = facts.controllers.iter().find(|fact| fact.controller == controller);
            let place = fact.and_then(|fact| Some((PathBuf::from(fact.mount.as_ref()?), fact.version?)));
            place.with_context(|| format!("the controller `{controller}` is not mounted"))
        };
        let (cpu, version) = find(Controller::Cpu)?;
        let (cpuacct, usage) = match find(Controller::Cpuacct)? {
            (mount, CgroupVersion::V1) => (mount, "cpuacct.usage"),
            (mount, CgroupVersion::V2) => (mount, "cpu.stat"),
        };
        let (quota, burst) = match version {
            // The period is read once, and again after another program has written it.
            CgroupVersion::V1 => ("cpu.cfs_quota_us", "cpu.cfs_burst_us"),
            CgroupVersion::V2 => ("cpu.max", "cpu.max.burst"),
        };
        let (cpuset, cpus) = match find(Controller::Cpuset)? {
            (mount, CgroupVersion::V1) => (mount, "cpuset.cpus"),
            (mount, CgroupVersion::V2) => (mount, "cpuset.cpus.effective"),
        };
        let (mut counters, mut groups, mut cpusets) = (Vec::new(), Vec::new(), Vec::new());
        for pod in pods {
            let above = host.pod_path(pod);
            groups.push(above);
            for container in &pod.containers {
                let path = host.container_path(pod, container)?;
                let path = path.with_context(|| format!("{} has no cgroup", pod.key()))?;
                counters.push(cpu.join(&path).join("cpu.stat"));
                // On v2 the same file tells both.
                if cpuacct != cpu || usage != "cpu.stat" {
                    counters.push(cpuacct.join(&path).join(usage));
                }
                cpusets.push(cpuset.join(&path).join(cpus));
                groups.push(path);
            }
        }
        let rounds = usize::try_from(DriftConfig::default().verify_interval_ticks(true))?;
        let seen_again = usize::try_from(DriftConfig::default().verify_interval_ticks(false))?;
        let share = groups.len().div_ceil(rounds).max(1);
        let turns = (0..rounds).map(|turn| {
            let mut files = counters.clone();
            files.extend([PathBuf::from("/proc/meminfo"), PathBuf::from("/proc/stat")]);
            for group in groups.iter().skip(turn).step_by(rounds) {
                files.push(cpu.join(group).join(quota));
            }
            // The tier that may be held back, once a round as well.
            if turn == 0 {
                files.push(cpu.join(host.tier_path(Tier::BestEffort)).join(quota));
            }
            // One container's in each tick, and now and then that of the tier.
            files.extend(cpusets.get(turn % cpusets.len().max(1)).cloned());
            if turn % seen_again == 0 {
                files.push(cpuset.join(host.tier_path(Tier::Guaranteed)).join(cpus));
            }
            // What is not there is looked for and not read.
            files.retain(|file| file.exists());
            files.extend(groups.chunks(share).nth(turn).into_iter().flatten().map(|group| cpu.join(group).join(burst)));
            files
        });
        Ok(Self { turns: turns.collect() })
    }

    /// Ticks until the same files are read again.
    pub fn rounds(&self) -> usize {
        self.turns.len()
    }

    /// Reads in one tick, on average.
    pub fn a_tick(&self) -> f64 {
        let all: usize = self.turns.iter().map(Vec::len).sum();
        crate::figures::float(all) / crate::figures::float(self.turns.len())
    }

    /// Counts the system calls with which a whole round of ticks reads, and compares.
    ///
    /// # Errors
    ///
    /// When they are not as many as there are files, or cannot be counted: then a ratio to these files would mean nothing.
    pub fn check(&self, mut tick: impl FnMut()) -> anyhow::Result<()> {
        let counter = Path::new("/proc/thread-self/io");
        let count = || -> anyhow::Result<u64> {
            let text =
                fs::read_to_string(counter).with_context(|| format!("cannot count reads in {}", counter.display()))?;
            let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
            Ok(line.context("there is no `syscr` in it")?.trim().parse()?)
        };
        let own = {
            let before = count()?;
            count()? - before
        };
        // What has just been taken up is looked at from the next round on.
        for _ in 0..self.turns.len() * 2 {
            tick();
        }
        let before = count()?;
        for _ in 0..self.turns.len() {
            tick();
        }
        let made = (count()? - before).saturating_sub(own);
        let files: usize = self.turns.iter().map(Vec::len).sum();
        // One more a tick asks whether another program wrote a knob.
        let expected = files + self.turns.len();
        anyhow::ensure!(
            made == u64::try_from(expected)?,
            "{} ticks of the agent read {made} times, but the bench believes in {expected}: its list in bare.rs is out of date",
            self.turns.len()
        );
        Ok(())
    }

    /// Opens all files for good.
    ///
    /// # Errors
    ///
    /// When one cannot be opened.
    pub fn keep(&self) -> anyhow::Result<KeptFiles> {
        let mut files = Vec::new();
        let mut places = std::collections::HashMap::new();
        let mut turns = Vec::with_capacity(self.turns.len());
        for paths in &self.turns {
            let mut turn = Vec::with_capacity(paths.len());
            for path in paths {
                let place = match places.get(path) {
                    Some(&place) => place,
                    None => {
                        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
                        files.push(file);
                        places.insert(path, files.len() - 1);
                        files.len() - 1
                    }
                };
                turn.push(place);
            }
            turns.push(turn);
        }
        Ok(KeptFiles { turns, files, buffer: vec![0; 1 << 16] })
    }

    /// Opens, reads and closes each file of a tick, and returns how many bytes they held.
    ///
    /// # Errors
    ///
    /// Of the first file that cannot be read.
    pub fn open_read_close(&self, tick: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let mut bytes = 0;
        for path in &self.turns[tick % self.turns.len()] {
            bytes += File::open(path)?.read(buffer)?;
        }
        Ok(bytes)
    }
}

impl KeptFiles {
    /// One `pread` for each file of a tick; returns how many bytes they held.
    ///
    /// # Errors
    ///
    /// Of the first file that cannot be read.
    pub fn pread(&mut self, tick: usize) -> io::Result<usize> {
        let mut bytes = 0;
        for &place in &self.turns[tick % self.turns.len()] {
            bytes += self.files[place].read_at(&mut self.buffer, 0)?;
        }
        Ok(bytes)
    }
}
