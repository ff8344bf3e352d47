//! Keys and passwords for clusters and registries.

use std::process::Command;

use anyhow::{Context, Result};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::command;
use crate::state_dir::StateDir;

/// Creates a private key on the curve P-256, which all programs support.
///
/// # Errors
///
/// As [`openssl`].
pub(crate) fn private(state: &StateDir, file: &str) -> Result<()> {
    openssl(state, &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", file])
}

/// Runs openssl in a folder.
///
/// # Errors
///
/// When it fails.
pub(crate) fn openssl(state: &StateDir, args: &[&str]) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(args).current_dir(state.dir());
    command::output(&mut openssl).map(drop).context("openssl makes no keys")
}

/// 32 random hexadecimal digits.
///
/// # Errors
///
/// When the kernel gives none.
pub(crate) fn random() -> Result<String> {
    let mut bytes = [0_u8; 16];
    // The kernel always returns this few bytes at once (getrandom(2)).
    getrandom(bytes.as_mut_slice(), GetRandomFlags::empty()).context("there is no randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
