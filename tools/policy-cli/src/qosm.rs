//! Where `qosm` is: the demo runs the agent that an operator runs.

use std::path::PathBuf;

use anyhow::Context;

/// The program `qosm`: the one that started this program, which names itself in `QOSM_BIN`; else the one beside this program, else the
/// one on the PATH.
///
/// # Errors
///
/// When there is none.
pub(crate) fn find() -> anyhow::Result<PathBuf> {
    if let Some(said) = std::env::var_os("QOSM_BIN") {
        return Ok(said.into());
    }
    let beside = std::env::current_exe().ok().map(|this| this.with_file_name("qosm"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join("qosm"));
    beside.into_iter().chain(on_path).find(|program| program.is_file()).context(
        "the program `qosm` is neither beside this one nor on the PATH, and the demo runs its agent: install it",
    )
}
