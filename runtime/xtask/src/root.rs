//! Runs commands as root.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::workspace;

/// The way in which this process can run commands as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootAccess {
    /// This process is root.
    Root,
    /// `sudo` works without a password.
    Sudo,
    /// Neither; this process is an ordinary user's.
    None,
}

impl RootAccess {
    /// Checks the user ID, then whether `sudo -n` works.
    pub(crate) fn here() -> Self {
        if rustix::process::geteuid().is_root() {
            return Self::Root;
        }
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if workspace::program("sudo").is_some() && sudo.status().is_ok_and(|status| status.success()) {
            Self::Sudo
        } else {
            Self::None
        }
    }

    /// A command that runs as root; `None` if that is impossible. Environment variables have to be in `variables`, since sudo drops the
    /// others.
    pub(crate) fn command(self, program: impl AsRef<OsStr>, variables: &[(&str, &OsStr)]) -> Option<Command> {
        let mut command = match self {
            Self::Root => {
                let mut command = Command::new(program);
                command.envs(variables.iter().copied());
                return Some(command);
            }
            Self::Sudo => Command::new("sudo"),
            Self::None => return None,
        };
        command.args(["-n", "env"]);
        for (name, value) in variables {
            let mut assignment = std::ffi::OsString::from(name);
            assignment.push("=");
            assignment.push(value);
            command.arg(assignment);
        }
        command.arg(program);
        Some(command)
    }
}
