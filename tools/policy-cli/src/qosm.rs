//! Finds `qosm`: the demo runs the same agent as an operator.

use std::path::PathBuf;

use anyhow::Context;

/// Path of `qosm`: the program that started this one and set `QOSM_BIN`; else the one next to this program; else the one on the `PATH`.
///
/// # Errors
///
/// If there is none.
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
