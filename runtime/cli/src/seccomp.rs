//! Installs the seccomp profile of agents on Kubernetes.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use qosm_terminal::Answer;

/// The profile, stored beside the chart that refers to it.
const PROFILE: &str = include_str!("../../../deploy/seccomp/qosm.json");

/// Replaces the profile atomically: a container that starts meanwhile gets the old or the new one.
pub(crate) fn install(file: &Path) -> anyhow::Result<Answer> {
    let write = || -> std::io::Result<()> {
        if std::fs::read_to_string(file).is_ok_and(|there| there == PROFILE) {
            return Ok(());
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let temporary = file.with_extension("new");
        std::fs::File::create(&temporary)?.write_all(PROFILE.as_bytes())?;
        std::fs::rename(&temporary, file)
    };
    write().with_context(|| format!("the seccomp profile cannot be written to {}", file.display()))?;
    Ok(Answer::Good)
}
