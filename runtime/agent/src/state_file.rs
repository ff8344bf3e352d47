//! Small files of the state folder, each written as a whole.

use std::io::Write as _;

use cap_std::fs::Dir;
use serde::Serialize;

/// The content of a file; `None` if there is none. An error is logged.
pub(crate) fn read(state: &Dir, file: &str) -> Option<Vec<u8>> {
    match state.read(file) {
        Ok(content) => Some(content),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(file, %error, "file cannot be read; it counts as empty");
            }
            None
        }
    }
}

/// Replaces a file atomically. Returns `false` if that failed, which is logged.
pub(crate) fn write(state: &Dir, file: &str, content: &impl Serialize) -> bool {
    let written = || -> std::io::Result<()> {
        let text = serde_json::to_vec(content)?;
        let temporary = format!("{file}.new");
        let mut fresh = state.create(&temporary)?;
        fresh.write_all(&text)?;
        fresh.sync_all()?;
        drop(fresh);
        state.rename(&temporary, state, file)
    };
    let written = written();
    if let Err(error) = &written {
        tracing::warn!(file, %error, "not written; after a restart its last written content applies");
    }
    written.is_ok()
}
