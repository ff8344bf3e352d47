//! A process whose pages are moved, identified by a descriptor, since its PID may be reused.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use cap_std::fs::Dir;
use qosm_model::numa::NumaId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::backend::join;
use crate::error;
use crate::parse;

/// Levels of nested cgroups that are searched for processes, as of a container in a container.
const DEPTH: usize = 8;
/// Number of entries of `pagemap` that one read takes: one page.
const ENTRIES: usize = 512;
/// Number of `pagemap` reads between two checks for cancellation.
const READS: usize = 64;
/// Size of an entry of `pagemap`, in bytes.
const ENTRY: u64 = 8;
/// The page is in memory (bit 63 of an entry; Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;

/// The processes of a cgroup and those below it, each once.
///
/// # Errors
///
/// If the cgroup itself cannot be read.
pub(super) fn of_cgroup(hierarchy: &Dir, path: &str) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    collect(hierarchy, path, DEPTH, &mut pids)?;
    pids.sort_unstable_by_key(|pid| pid.as_raw_pid());
    pids.dedup();
    Ok(pids)
}

fn collect(hierarchy: &Dir, path: &str, depth: usize, pids: &mut Vec<Pid>) -> io::Result<()> {
    let text = hierarchy.read_to_string(join(path, "cgroup.procs"))?;
    // A process outside of the agent's PID namespace reads as 0.
    pids.extend(text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)));
    if depth == 0 {
        return Ok(());
    }
    for entry in hierarchy.read_dir(path)? {
        let Ok(entry) = entry else { continue };
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            // A child cgroup that disappears meanwhile has no processes.
            collect(hierarchy, &join(path, &name), depth - 1, pids).ok();
        }
    }
    Ok(())
}

/// A mapping with pages on the wrong nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) page_size: u64,
    /// Number of its pages on the wrong nodes.
    pub(super) remote: u64,
    /// It maps a file, which other processes may have mapped too.
    pub(super) is_file: bool,
}

/// A process, with a descriptor that survives reuse of its PID.
pub(super) struct Process {
    pub(super) pid: Pid,
    /// `None` before Linux 5.3.
    descriptor: Option<OwnedFd>,
}

impl Process {
    /// # Errors
    ///
    /// `ESRCH` if no process has this PID.
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { pid, descriptor: Some(descriptor) }),
            Err(Errno::NOSYS) => Ok(Self { pid, descriptor: None }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the process has ended since it was opened. A pidfd becomes readable when its process ends.
    pub(super) fn has_exited(&self) -> bool {
        let Some(descriptor) = &self.descriptor else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Classifies an error: every error of a process that has ended becomes `ESRCH`. A killed process still exists
    /// while it frees its memory, and move_pages(2) returns `EINVAL` for a process without memory.
    pub(super) fn classify_error(&self, source: io::Error) -> io::Error {
        let is_ending = error::is(&source, Errno::NOENT) || error::is(&source, Errno::INVAL);
        if is_ending || self.has_exited() { Errno::SRCH.into() } else { source }
    }

    /// The mappings with pages on these nodes.
    ///
    /// # Errors
    ///
    /// If `numa_maps` or `maps` cannot be read: `EACCES` without `CAP_SYS_PTRACE`. `ESRCH` if there is no mapping at
    /// all: the process is freeing its memory.
    pub(super) fn areas(&self, proc: &Dir, page_size: u64, from: &[NumaId]) -> io::Result<Vec<Area>> {
        let read = |name: &str| proc.read(format!("{}/{name}", self.pid.as_raw_pid()));
        let (mappings, ranges) = (read("numa_maps")?, read("maps")?);
        if ranges.is_empty() {
            return Err(Errno::SRCH.into());
        }
        Ok(areas(&mappings, &ranges, page_size, from))
    }

    /// The pages of a mapping that are in memory.
    ///
    /// # Errors
    ///
    /// If `pagemap` cannot be opened.
    pub(super) fn present(&self, proc: &Dir, area: &Area, base_page_size: u64) -> io::Result<Present> {
        let file = proc.open(format!("{}/pagemap", self.pid.as_raw_pid()))?.into_std();
        Ok(Present { file, next: area.start, end: area.end, step: area.page_size, base_page_size, ready: Vec::new() })
    }
}

fn areas(mappings: &[u8], ranges: &[u8], page_size: u64, from: &[NumaId]) -> Vec<Area> {
    let mut ranges = ranges.split(|&byte| byte == b'\n').filter_map(parse::numa::range).peekable();
    let mut areas = Vec::new();
    for mapping in mappings.split(|&byte| byte == b'\n').filter_map(|line| parse::numa::mapping(line, page_size)) {
        let remote = mapping.pages.iter().filter(|(id, _)| from.contains(id)).map(|(_, pages)| pages).sum();
        // Both files are sorted by address; a mapping that changed in between is left out.
        while ranges.next_if(|(start, _)| *start < mapping.start).is_some() {}
        if let Some((start, end)) = ranges.next_if(|(start, _)| *start == mapping.start)
            && remote > 0
        {
            areas.push(Area { start, end, page_size: mapping.page_size, remote, is_file: mapping.is_file });
        }
    }
    areas
}

/// Iterates over the addresses of pages in memory.
pub(super) struct Present {
    file: std::fs::File,
    next: u64,
    end: u64,
    step: u64,
    base_page_size: u64,
    /// Addresses found but not returned yet, in descending order.
    ready: Vec<u64>,
}

impl Present {
    /// Whether all addresses were returned.
    pub(super) fn is_done(&self) -> bool {
        self.ready.is_empty() && self.next >= self.end
    }

    /// Adds addresses up to `count` in total, the end of the mapping, or a bound on the reads: a mapping may span
    /// terabytes without a page.
    ///
    /// # Errors
    ///
    /// If `pagemap` cannot be read.
    pub(super) fn fill(&mut self, addresses: &mut Vec<u64>, count: usize) -> io::Result<()> {
        for _ in 0..READS {
            while addresses.len() < count
                && let Some(address) = self.ready.pop()
            {
                addresses.push(address);
            }
            if addresses.len() >= count || self.next >= self.end {
                return Ok(());
            }
            self.read_on()?;
        }
        Ok(())
    }

    fn read_on(&mut self) -> io::Result<()> {
        let mut buffer = [0_u8; ENTRIES * 8];
        let base = self.base_page_size.max(1);
        let first = self.next / base;
        let wanted = usize::try_from((self.end - self.next).div_ceil(base)).unwrap_or(ENTRIES).min(ENTRIES);
        let read = self.file.read_at(&mut buffer[..wanted * 8], first * ENTRY)?;
        let (entries, _) = buffer[..read].as_chunks::<8>();
        for (place, entry) in (0_u64..).zip(entries) {
            let address = (first + place) * base;
            if address.is_multiple_of(self.step.max(base)) && u64::from_ne_bytes(*entry) & PRESENT != 0 {
                self.ready.push(address);
            }
        }
        self.ready.reverse();
        // The map of a process that has ended is empty.
        let advanced = u64::try_from(entries.len()).unwrap_or(0);
        self.next = if advanced == 0 { self.end } else { (first + advanced) * base };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_memory_counts_as_ended() {
        let process = Process::open(rustix::process::getpid()).unwrap();
        for (error, meant) in [
            (Errno::INVAL, Errno::SRCH),
            (Errno::NOENT, Errno::SRCH),
            (Errno::SRCH, Errno::SRCH),
            (Errno::PERM, Errno::PERM),
            (Errno::NODEV, Errno::NODEV),
        ] {
            assert_eq!(Errno::from_io_error(&process.classify_error(error.into())), Some(meant), "{error:?}");
        }
    }

    #[test]
    fn mappings_with_pages_on_the_wrong_nodes_are_found() {
        let mappings = b"1000 default anon=3 N0=1 N1=2 kernelpagesize_kB=4\n3000 default\n4000 default anon=1 N0=1\n\
                         6000 default file=/lib/x N1=7 kernelpagesize_kB=4\n9000 default anon=1 N1=1\n";
        let ranges = b"1000-3000 rw-p 0\n3000-4000 r--p 0\n4000-5000 rw-p 0\n5000-6000 rw-p 0\n6000-7000 r-xp 0\n";
        let area = |start, end, remote, is_file| Area { start, end, page_size: 4096, remote, is_file };
        let expected = [area(0x1000, 0x3000, 2, false), area(0x6000, 0x7000, 7, true)];
        assert_eq!(areas(mappings, ranges, 4096, &[NumaId(1)]), expected);
    }

    #[test]
    fn pages_in_memory_are_found_and_others_are_not() {
        let page = 4096_u64;
        let file = tempfile::tempfile().unwrap();
        // Entries 0 to 1999; every third page is in memory.
        let entries: Vec<u8> =
            (0..2000_u64).flat_map(|place| (if place % 3 == 0 { PRESENT | 5 } else { 7 }).to_ne_bytes()).collect();
        file.write_all_at(&entries, 0).unwrap();
        let present = |file, start: u64, end: u64| Present {
            file,
            next: start * page,
            end: end * page,
            step: page,
            base_page_size: page,
            ready: Vec::new(),
        };
        let mut walk = present(file.try_clone().unwrap(), 1, 1400);
        let mut found = Vec::new();
        loop {
            let before = found.len();
            walk.fill(&mut found, before + 100).unwrap();
            if found.len() == before {
                break;
            }
        }
        let expected: Vec<u64> = (1..1400).filter(|place| place % 3 == 0).map(|place| place * page).collect();
        assert_eq!(found, expected);
        let mut beyond = present(file, 1990, 9000);
        found.clear();
        beyond.fill(&mut found, 100).unwrap();
        assert_eq!(found, [1992 * page, 1995 * page, 1998 * page]);
    }
}
