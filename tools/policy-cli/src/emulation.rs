//! Verbs that use an emulated resctrl: `qosm resctrl emulate` and `qosm demo resctrl`. No other part of the binary uses the emulation.

mod console;
mod demo;
mod emulate;
mod pods;
mod usage;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use qosm_resctrl_fuse::{Clock, Mounted, Proc, Profile, Tree, mount};
use qosm_terminal::{Usage, document};

pub(crate) use self::demo::run as demo;
pub(crate) use self::emulate::run as emulate;

/// A mounted emulation of resctrl. Dropping it unmounts it, and removes the folder if it was created for it.
struct Emulation {
    // Dropped before the folder, so that it is unmounted first.
    mounted: Option<Mounted>,
    folder: PathBuf,
    is_made: bool,
}

impl Emulation {
    /// Mounts an emulation on `folder`.
    fn mount(folder: &Path, profile: Profile, clock: Clock) -> anyhow::Result<Self> {
        let tree = Tree::new(profile, Proc::new())?;
        let is_made = !folder.exists();
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut emulation = Self { mounted: None, folder: folder.to_owned(), is_made };
        emulation.mounted = Some(mount(Arc::new(Mutex::new(tree)), folder, clock)?);
        Ok(emulation)
    }

    /// The mount point, as the kernel spells it.
    fn path(&self) -> &Path {
        self.mounted.as_ref().map_or(&self.folder, Mounted::path)
    }

    /// The emulated tree. The caller must not access the mount while it holds the guard.
    fn tree(&self) -> Option<MutexGuard<'_, Tree>> {
        // A poisoned tree is still usable: its operations leave nothing half done.
        self.mounted.as_ref().map(|mounted| mounted.tree().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Unmounts the emulation.
    fn end(mut self) -> anyhow::Result<()> {
        self.mounted.take().map_or(Ok(()), Mounted::unmount)?;
        Ok(())
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        drop(self.mounted.take());
        if self.is_made {
            // The folder may contain other files; then it stays.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// A machine profile, by name or from a file.
fn profile(text: &str) -> anyhow::Result<Profile> {
    let is_file = text.contains('/') || [".yaml", ".yml", ".json"].iter().any(|end| text.ends_with(end));
    if is_file {
        return Ok(document::read(Path::new(text))?);
    }
    let known = || Profile::NAMES.join(", ");
    Profile::named(text).ok_or_else(|| {
        Usage(format!(
            "--profile `{text}`: no machine of that name; there are: {}; a file is named with a slash",
            known()
        ))
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_name_or_a_file() {
        assert_eq!(profile("amd").unwrap(), Profile::amd());
        let error = profile("pentium").unwrap_err().to_string();
        assert!(error.contains("`pentium`") && error.contains("few-closids"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.yaml");
        fs::write(&file, serde_json::to_string(&Profile::haswell()).unwrap()).unwrap();
        assert_eq!(profile(file.to_str().unwrap()).unwrap(), Profile::haswell());
        fs::write(&file, r#"{"kernel": "six"}"#).unwrap();
        assert!(profile(file.to_str().unwrap()).unwrap_err().to_string().contains("six"));
    }

    #[test]
    fn a_machine_without_resctrl_cannot_be_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Emulation::mount(folder.path(), Profile::none(), Clock::Real).map(drop).unwrap_err();
        assert!(refused.to_string().starts_with("the machine has neither allocation nor monitoring"), "{refused}");
    }
}
