//! Preloads a library between user-mode Linux and the C library that provides what the former lacks on the newest CPUs; see `xstate.c`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

const SOURCE: &str = include_str!("xstate.c");

/// Compiles the library next to the program, unless it is there, with the compiler that Rust uses for linking.
///
/// # Errors
///
/// When there is no compiler, or the folder cannot be written.
pub(super) fn build(program: &Path) -> Result<()> {
    let (library, source) = (library(program), program.with_file_name("xstate.c"));
    if library.is_file() && fs::read_to_string(&source).is_ok_and(|built| built == SOURCE) {
        return Ok(());
    }
    let fresh = library.with_extension("so.new");
    fs::write(&source, SOURCE).with_context(|| format!("{} cannot be written", source.display()))?;
    command::output(Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&fresh).arg(&source).arg("-ldl"))?;
    fs::rename(&fresh, &library).with_context(|| format!("{} cannot be made", library.display()))
}

/// Path of the library, if it was built.
pub(super) fn built(program: &Path) -> Option<PathBuf> {
    Some(library(program)).filter(|library| library.is_file())
}

fn library(program: &Path) -> PathBuf {
    program.with_file_name("xstate.so")
}
