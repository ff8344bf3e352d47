//! What a group uses: how much of each cache, and how much traffic with memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use qosm_model::unit::Bytes;

use super::error::ResctrlError;
use super::group::Group;
use super::groups::Groups;
use super::resource::CacheId;
use crate::backend::join;
use crate::error::is_absent;

/// Counters of one group, with their files kept open: reading them resolves no path and allocates nothing.
///
/// A control group's counters include those of its monitor groups. Caches that appear later are not read, and a removed
/// one is reported as [`ResctrlError::Gone`]: open the counters again, which returns the same error if the group itself
/// is gone.
#[derive(Debug)]
pub struct Counters {
    path: String,
    files: Vec<Files>,
    samples: Vec<CacheSample>,
}

/// What a group used at a cache. `None` = not known at this moment: nothing counted yet, a fault, no counter assigned, or no such
/// counter on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSample {
    /// Which level-3 cache.
    pub cache: CacheId,
    /// How much of the cache holds the group's lines now. Lines stay counted for the group that a thread was in when it loaded them.
    pub llc_occupancy: Option<Bytes>,
    /// Traffic with memory since the group was made.
    pub mbm_total: Option<Bytes>,
    /// Traffic with the memory of the cache's own NUMA node, since the group was made.
    pub mbm_local: Option<Bytes>,
}

/// Traffic with memory between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// With all memory.
    pub total: Option<Bytes>,
    /// With the memory of the cache's own NUMA node.
    pub local: Option<Bytes>,
}

impl CacheSample {
    /// Traffic since an earlier sample of the same cache; divided by the time between them, the bandwidth. `None` where
    /// one of them is missing, or a counter was reset with its group.
    pub fn traffic_since(&self, earlier: &Self) -> Traffic {
        let difference = |now: Option<Bytes>, then: Option<Bytes>| now?.0.checked_sub(then?.0).map(Bytes);
        if self.cache != earlier.cache {
            return Traffic::default();
        }
        Traffic {
            total: difference(self.mbm_total, earlier.mbm_total),
            local: difference(self.mbm_local, earlier.mbm_local),
        }
    }
}

/// Files of one cache: one a counter, or one for each of its parts where only these have counters.
#[derive(Debug, Default)]
struct Files {
    llc_occupancy: Vec<File>,
    mbm_total: Vec<File>,
    mbm_local: Vec<File>,
}

impl Counters {
    /// Opens a group's counters; `None` = the root's, which are those of all that is in no other group. None at all where nothing
    /// is monitored.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`] if the group is, [`ResctrlError::Read`].
    pub fn open(groups: &Groups, group: Option<&Group>) -> Result<Self, ResctrlError> {
        let directory = group.map(Group::directory).unwrap_or_default();
        let data = join(&directory, "mon_data");
        let mut counters = Self { path: groups.absolute(&directory), files: Vec::new(), samples: Vec::new() };
        let caches = match caches(groups, &data, CACHE) {
            Ok(caches) => caches,
            Err(source) if is_absent(&source) && groups.info().monitoring.is_none() => return Ok(counters),
            Err(source) => return Err(groups.unreadable(&data, source)),
        };
        for (cache, name) in caches {
            let path = join(&data, &name);
            let files = Files::open(groups, &path).map_err(|source| groups.unreadable(&path, source))?;
            counters.files.push(files);
            counters.samples.push(CacheSample { cache, llc_occupancy: None, mbm_total: None, mbm_local: None });
        }
        // A group that is removed meanwhile looks as if it had no counters.
        match groups.root.metadata(&data) {
            Ok(_) => Ok(counters),
            Err(source) => Err(groups.unreadable(&data, source)),
        }
    }

    /// Reads all counters, by cache id. Of an error the rest is read even so, and shown by [`Counters::samples`].
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`] if the group or one of the caches is, [`ResctrlError::Read`].
    pub fn read(&mut self) -> Result<&[CacheSample], ResctrlError> {
        let mut failure = None;
        let mut sum = |files: &[File]| match sum(files) {
            Ok(sum) => sum.map(Bytes),
            Err(error) => {
                failure.get_or_insert(error);
                None
            }
        };
        for (files, sample) in self.files.iter().zip(&mut self.samples) {
            sample.llc_occupancy = sum(&files.llc_occupancy);
            sample.mbm_total = sum(&files.mbm_total);
            sample.mbm_local = sum(&files.mbm_local);
        }
        match failure {
            None => Ok(&self.samples),
            Some(source) if is_absent(&source) => Err(ResctrlError::Gone { path: self.path.clone() }),
            Some(source) => Err(ResctrlError::Read { path: join(&self.path, "mon_data"), source }),
        }
    }

    /// How many files it keeps open.
    pub(crate) fn open_files(&self) -> usize {
        let of = |files: &Files| files.llc_occupancy.len() + files.mbm_total.len() + files.mbm_local.len();
        self.files.iter().map(of).sum()
    }

    /// What was read last.
    pub fn samples(&self) -> &[CacheSample] {
        &self.samples
    }
}

/// `mon_L3_00`: a level-3 cache, by its id.
const CACHE: &str = "mon_L3_";

/// Within it, a NUMA node that has a part of the cache (sub-NUMA clusters, from Linux 6.10).
const PART: &str = "mon_sub_L3_";

fn caches(groups: &Groups, directory: &str, prefix: &str) -> io::Result<Vec<(CacheId, String)>> {
    let mut found = Vec::new();
    for entry in groups.root.read_dir(directory)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let id = name.strip_prefix(prefix).and_then(|id| crate::parse::number(id.as_bytes()));
        if let Some(id) = id.and_then(|id| u32::try_from(id).ok()) {
            found.push((CacheId(id), name));
        }
    }
    found.sort_unstable();
    Ok(found)
}

impl Files {
    fn open(groups: &Groups, path: &str) -> io::Result<Self> {
        let parts = caches(groups, path, PART)?;
        let open = |name: &str| -> io::Result<Vec<File>> {
            let whole = match groups.root.open(join(path, name)) {
                // Already the sum of its parts, if there are any.
                Ok(file) => return Ok(vec![file.into_std()]),
                Err(error) => error,
            };
            if !is_absent(&whole) {
                return Err(whole);
            }
            let mut files = Vec::new();
            for (_, part) in &parts {
                match groups.root.open(join(&join(path, part), name)) {
                    Ok(file) => files.push(file.into_std()),
                    Err(error) if is_absent(&error) => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                }
            }
            Ok(files)
        };
        Ok(Self {
            llc_occupancy: open("llc_occupancy")?,
            mbm_total: open("mbm_total_bytes")?,
            mbm_local: open("mbm_local_bytes")?,
        })
    }
}

/// The sum of files that each hold a number. `None` without files, and if one of them holds none: a sum that lacks a part now and has
/// it the next time would look like traffic.
fn sum(files: &[File]) -> io::Result<Option<u64>> {
    let mut sum: Option<u64> = None;
    for file in files {
        // `Unavailable`, `Error`, `Unassigned`.
        let Some(value) = value(file)? else { return Ok(None) };
        sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
    Ok(sum)
}

fn value(file: &File) -> io::Result<Option<u64>> {
    let mut buffer = [0; 64];
    loop {
        match file.read_at(&mut buffer, 0) {
            Ok(length) => return Ok(crate::parse::number(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
