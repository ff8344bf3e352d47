//! Observes writes to cgroup files by inotify, independently of the program under test.

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// A watcher of files.
pub(crate) struct Watch {
    inotify: OwnedFd,
    paths: BTreeMap<i32, PathBuf>,
}

impl Watch {
    /// Watches every file of these groups and of all below them, and the folders themselves. The kernel also reports its own changes of
    /// event files (`memory.events`) as writes, so for files that are no knobs only those count that were open for writing.
    pub(crate) fn start(groups: Vec<PathBuf>, knobs: impl Fn(&Path) -> bool) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let mut watch = Self { inotify, paths: BTreeMap::new() };
        let mut folders = groups;
        while let Some(folder) = folders.pop() {
            watch.add(&folder, WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ATTRIB);
            for entry in fs::read_dir(&folder).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if knobs(&path) {
                    watch.add(&path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB);
                } else {
                    watch.add(&path, WatchFlags::CLOSE_WRITE);
                }
            }
        }
        watch
    }

    fn add(&mut self, path: &Path, flags: WatchFlags) {
        let id = inotify::add_watch(&self.inotify, path, flags).unwrap();
        self.paths.insert(id, path.to_owned());
    }

    /// The files written since the last call.
    pub(crate) fn written(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut written = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let path = self.paths.get(&event.wd()).map(|path| path.display().to_string()).unwrap_or_default();
                    written.push(format!("{path} {:?}", event.events()));
                }
                Err(Errno::WOULDBLOCK) => return written,
                Err(error) => unreachable!("the watcher fails: {error}"),
            }
        }
    }
}
