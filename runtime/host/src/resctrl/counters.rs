//! Use of resources by a group: occupancy of each cache, and traffic with memory.

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

/// Counters of one group, whose files stay open: reading them resolves no path and allocates no memory.
///
/// A control group's counters include those of its monitor groups. Caches that appear later are not read, and a removed
/// cache is reported as [`ResctrlError::Gone`]: open the counters again, which returns the same error if the group
/// itself is gone.
#[derive(Debug)]
pub struct Counters {
    path: String,
    files: Vec<Files>,
    samples: Vec<CacheSample>,
}

/// A group's use of a cache. A value is `None` if it is unknown at present: nothing counted yet, a fault, no counter
/// assigned, or no such counter on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSample {
    /// The level-3 cache.
    pub cache: CacheId,
    /// Size of the group's lines in the cache at present. A line counts for the group of the thread that loaded it.
    pub llc_occupancy: Option<Bytes>,
    /// Traffic with memory since the group was created.
    pub mbm_total: Option<Bytes>,
    /// Traffic with the memory of the cache's own NUMA node since the group was created.
    pub mbm_local: Option<Bytes>,
}

/// Traffic with memory between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Traffic with all memory.
    pub total: Option<Bytes>,
    /// Traffic with the memory of the cache's own NUMA node.
    pub local: Option<Bytes>,
}

impl CacheSample {
    /// Traffic since an earlier sample of the same cache; divide it by the time between them for the bandwidth. `None`
    /// if a value is missing, or a counter was reset with its group.
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

/// Files of one cache: one per counter, or one for each part of the cache if only the parts have counters.
#[derive(Debug, Default)]
struct Files {
    llc_occupancy: Vec<File>,
    mbm_total: Vec<File>,
    mbm_local: Vec<File>,
}

impl Counters {
    /// Opens a group's counters; `None` for the root's, which count the threads in no other group. Without monitoring
    /// there are no counters.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`] if the group is gone, [`ResctrlError::Read`].
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
        // A group that is removed meanwhile looks like one without counters.
        match groups.root.metadata(&data) {
            Ok(_) => Ok(counters),
            Err(source) => Err(groups.unreadable(&data, source)),
        }
    }

    /// Reads all counters, by cache id. After an error, the other counters are still read; [`Counters::samples`] returns them.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`] if the group or one of the caches is gone, [`ResctrlError::Read`].
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

    /// Number of open files.
    pub(crate) fn open_files(&self) -> usize {
        let of = |files: &Files| files.llc_occupancy.len() + files.mbm_total.len() + files.mbm_local.len();
        self.files.iter().map(of).sum()
    }

    /// The last samples.
    pub fn samples(&self) -> &[CacheSample] {
        &self.samples
    }
}

/// Prefix of a level-3 cache's directory, before its id, as in `mon_L3_00`.
const CACHE: &str = "mon_L3_";

/// Prefix of a NUMA node's part of the cache, within its directory (sub-NUMA clusters, since Linux 6.10).
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
                // The file already contains the sum of the parts, if there are any.
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

/// The sum of files with one number each. `None` without files, or if a file has no number: a sum without one part now
/// and with it the next time would look like traffic.
fn sum(files: &[File]) -> io::Result<Option<u64>> {
    let mut sum: Option<u64> = None;
    for file in files {
        // The file contains `Unavailable`, `Error` or `Unassigned`.
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
