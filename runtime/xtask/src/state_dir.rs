//! The folder of processes that outlive the command that started them: configuration, data, records and logs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A state folder.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    dir: PathBuf,
}

impl StateDir {
    /// The state folder at this path, which need not exist.
    ///
    /// # Errors
    ///
    /// When the path cannot be made absolute.
    pub(crate) fn at(dir: PathBuf) -> Result<Self> {
        let dir = std::path::absolute(&dir).with_context(|| format!("{} is no path", dir.display()))?;
        Ok(Self { dir })
    }

    /// Path of the folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of an entry in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Path of an entry as text, for command lines and configuration files.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Creates a subfolder with mode 0700, since it may hold keys.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub(crate) fn make(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    /// Writes a file in one step, readable by its owner only.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.path(name);
        let fresh = self.path(&format!("{name}.new"));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&fresh).and_then(|mut file| file.write_all(content.as_bytes()));
        written
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Whether the folder is empty or missing.
    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.dir).map_or(true, |mut entries| entries.next().is_none())
    }
}

/// Removes a folder, if it exists. It is renamed first, so that the rest after an interrupted removal is not used again; the next removal
/// deletes the rest.
///
/// # Errors
///
/// When it cannot be removed.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    let mut aside = folder.as_os_str().to_owned();
    // A name that nothing else uses: whatever is there is removed.
    aside.push(".removed-by-qosm-xtask");
    let aside = PathBuf::from(aside);
    remove_all(&aside)?;
    match fs::rename(folder, &aside) {
        Ok(()) => remove_all(&aside),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        // The folder may be a mount point, or its parent may belong to another user.
        Err(_) => remove_all(folder),
    }
}

fn remove_all(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_that_was_cut_off_is_finished_by_the_next() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("cluster");
        fs::create_dir_all(top.path().join("cluster.removed-by-qosm-xtask/data")).unwrap();
        fs::create_dir_all(folder.join("data")).unwrap();
        remove(&folder).unwrap();
        remove(&folder).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }
}
