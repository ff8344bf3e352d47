//! The mount of resctrl, and whether it still exists.

use std::io;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};
use rustix::mount::UnmountFlags;

use super::availability::USUAL_PATH;
use super::error::ResctrlError;
use crate::error::errno_name;

/// A mount of resctrl, accessed through its parent directory.
#[derive(Debug)]
pub(crate) struct Mount {
    parent: Dir,
    name: String,
    path: String,
    device: u64,
}

impl Mount {
    /// Opens the mount: through `sys` at the usual path, otherwise by the path that the operator configured.
    pub(crate) fn open(path: &str, sys: &Dir) -> Result<(Self, Dir), ResctrlError> {
        let unreadable = |source| ResctrlError::Read { path: path.to_owned(), source };
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = match above.strip_prefix("/sys/") {
            Some(below) if path == USUAL_PATH => sys.open_dir(below),
            _ => Dir::open_ambient_dir(if above.is_empty() { "/" } else { above }, ambient_authority()),
        };
        let parent = parent.map_err(unreadable)?;
        let root = parent.open_dir(name).map_err(unreadable)?;
        let device = root.dir_metadata().map_err(unreadable)?.dev();
        Ok((Self { parent, name: name.to_owned(), path: path.to_owned(), device }, root))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the same file system is still mounted there. Open directories do not show it: a lazily unmounted file
    /// system stays alive until they are closed.
    pub(crate) fn is_mounted(&self) -> bool {
        self.parent.metadata(&self.name).is_ok_and(|metadata| metadata.dev() == self.device)
    }

    /// Unmounts resctrl. No file or directory in it may be open.
    pub(crate) fn unmount(&self) -> Result<(), ResctrlError> {
        use std::os::fd::AsRawFd as _;
        let target = format!("/proc/self/fd/{}/{}", self.parent.as_raw_fd(), self.name);
        rustix::mount::unmount(target, UnmountFlags::empty()).map_err(|errno| {
            let source = io::Error::from(errno);
            ResctrlError::Unmount { path: self.path.clone(), errno: errno_name(&source), source }
        })
    }
}
