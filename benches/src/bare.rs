//! Reads the files of a CPU Burst tick without an agent, as the yardstick for it. [`TickFiles::check`] counts the agent's system calls, so
//! the list stays equal to what a tick reads.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_agent::config::DriftConfig;
use qosm_host::{CgroupVersion, Controller, Host};
use qosm_model::pod::{Pod, Tier};

/// Ticks between two reads of the agent's own CPU time.
const OWN_USE_TICKS: usize = 10;

/// The files of each tick of a round: counters in every tick, quotas and held knobs in turns, as an agent reads them that is notified of
/// other programs' writes.
pub struct TickFiles {
    turns: Vec<Vec<PathBuf>>,
}

/// The files of all ticks with open descriptors, as the host keeps them.
pub struct KeptFiles {
    turns: Vec<Vec<usize>>,
    files: Vec<File>,
    buffer: Vec<u8>,
}

impl TickFiles {
    /// The files for these pods, one container in each. CPU Burst holds a burst on every group, and no quota.
    ///
    /// # Errors
    ///
    /// If a cgroup or a hierarchy does not exist.
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
            // The agent reads the period once, and again only after another program wrote it.
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
                // On v2 one file has both.
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
            // The tier BestEffort may have a quota; it is read once in each round.
            if turn == 0 {
                files.push(cpu.join(host.tier_path(Tier::BestEffort)).join(quota));
            }
            // The cpuset of one container in each tick, and that of the tier from time to time.
            files.extend(cpusets.get(turn % cpusets.len().max(1)).cloned());
            if turn % seen_again == 0 {
                files.push(cpuset.join(host.tier_path(Tier::Guaranteed)).join(cpus));
            }
            // The agent's own CPU time, for `qosm top`.
            if turn % OWN_USE_TICKS == 0 {
                files.push(PathBuf::from("/proc/self/stat"));
            }
            // The agent looks for missing files but cannot read them.
            files.retain(|file| file.exists());
            files.extend(groups.chunks(share).nth(turn).into_iter().flatten().map(|group| cpu.join(group).join(burst)));
            files
        });
        Ok(Self { turns: turns.collect() })
    }

    /// Number of ticks until the same files are read again.
    pub fn rounds(&self) -> usize {
        self.turns.len()
    }

    /// Average number of reads in one tick.
    pub fn a_tick(&self) -> f64 {
        let all: usize = self.turns.iter().map(Vec::len).sum();
        crate::figures::float(all) / crate::figures::float(self.turns.len())
    }

    /// Counts the read system calls of a whole round of ticks, and compares them with the number of files.
    ///
    /// # Errors
    ///
    /// If the numbers differ, which would make ratios to these files meaningless, or the calls cannot be counted.
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
        // The agent checks newly taken knobs only from the next round on.
        for _ in 0..self.turns.len() * 2 {
            tick();
        }
        let before = count()?;
        for _ in 0..self.turns.len() {
            tick();
        }
        let made = (count()? - before).saturating_sub(own);
        let files: usize = self.turns.iter().map(Vec::len).sum();
        // One more read in each tick checks whether another program wrote a knob.
        let expected = files + self.turns.len();
        anyhow::ensure!(
            made == u64::try_from(expected)?,
            "{} ticks of the agent read {made} times, but the bench believes in {expected}: its list in bare.rs is out of date",
            self.turns.len()
        );
        Ok(())
    }

    /// Opens all files.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened.
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

    /// Opens, reads and closes each file of a tick. Returns the number of bytes read.
    ///
    /// # Errors
    ///
    /// The error of the first file that cannot be read.
    pub fn open_read_close(&self, tick: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let mut bytes = 0;
        for path in &self.turns[tick % self.turns.len()] {
            bytes += File::open(path)?.read(buffer)?;
        }
        Ok(bytes)
    }
}

impl KeptFiles {
    /// Reads each file of a tick with one `pread`. Returns the number of bytes read.
    ///
    /// # Errors
    ///
    /// The error of the first file that cannot be read.
    pub fn pread(&mut self, tick: usize) -> io::Result<usize> {
        let mut bytes = 0;
        for &place in &self.turns[tick % self.turns.len()] {
            bytes += self.files[place].read_at(&mut self.buffer, 0)?;
        }
        Ok(bytes)
    }
}
