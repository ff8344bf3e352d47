//! The confinement of a process, as `/proc/PID/status` shows it.

use std::io;

use crate::capabilities::names;

/// How the kernel filters the system calls of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeccompMode {
    /// All system calls are allowed.
    Off,
    /// Only `read`, `write` and ending are allowed.
    Strict,
    /// Number of filters; 0 = the kernel (before 5.9) does not count them.
    Filter(u32),
}

/// The confinement of one process; Landlock cannot be read from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether no `execve` grants privileges.
    pub no_new_privileges: bool,
    /// How system calls are filtered.
    pub seccomp: SeccompMode,
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// The bounding set.
    pub bounding: u64,
}

impl Status {
    /// Reads the status of the calling thread.
    ///
    /// # Errors
    ///
    /// When `/proc/thread-self/status` cannot be read or is not as proc(5) says.
    #[expect(clippy::disallowed_methods, reason = "proc tells what is in force")]
    pub fn read() -> io::Result<Self> {
        // The calling thread stands for all: the others were started by a thread that was already confined.
        Self::parse(&std::fs::read_to_string("/proc/thread-self/status")?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/thread-self/status lacks what proc(5) says")
        })
    }

    /// Reads the text of `/proc/PID/status`; `None` if a line is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim())
        };
        let set = |name: &str| u64::from_str_radix(value(name)?, 16).ok();
        let filters = value("Seccomp_filters").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Self {
            no_new_privileges: value("NoNewPrivs")? == "1",
            seccomp: match value("Seccomp").unwrap_or("0") {
                "0" => SeccompMode::Off,
                "1" => SeccompMode::Strict,
                _ => SeccompMode::Filter(filters),
            },
            effective: set("CapEff")?,
            bounding: set("CapBnd")?,
        })
    }

    /// Names of the effective capabilities.
    pub fn capabilities(&self) -> Vec<String> {
        names(self.effective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        let text = "Name:\tqosm\nCapInh:\t0000000000000000\nCapPrm:\t00000000000000c0\nCapEff:\t00000000000000c0\n\
                    CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let status = Status::parse(text).unwrap();
        assert!(status.no_new_privileges);
        assert_eq!(status.seccomp, SeccompMode::Filter(3));
        assert_eq!(status.capabilities(), ["SETGID", "SETUID"]);
        assert_eq!(status.bounding, 0x1ff_ffff_ffff);
        assert_eq!(Status::parse("Name:\tqosm\n"), None);
    }

    #[test]
    fn a_kernel_without_seccomp_filters_nothing() {
        let text = "CapEff:\t0\nCapBnd:\t0\nNoNewPrivs:\t0\n";
        assert_eq!(Status::parse(text).unwrap().seccomp, SeccompMode::Off);
    }

    #[test]
    fn this_process_has_one() {
        assert!(Status::read().is_ok());
    }
}
