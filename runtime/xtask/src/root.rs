//! Runs commands as root.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

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
    /// Asks a process of this user or of [`Self::command`] to end. It may have ended at this very moment.
    pub(crate) fn terminate(self, pid: Pid) {
        let is_of_root = kill_process(pid, Signal::TERM) == Err(Errno::PERM);
        if is_of_root && let Some(mut kill) = self.command("kill", &[]) {
            // sudo passes the signal on to the program, but not if it comes from the process group that sudo was started in.
            kill.args(["-TERM", &pid.to_string()]).process_group(0);
            let _ = kill.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_process_of_this_user_is_ended_without_sudo() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        RootAccess::None.terminate(Pid::from_child(&child));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
}
