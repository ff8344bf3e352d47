//! Drops capabilities.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// A capability by its number; see capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u32);

macro_rules! capabilities {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl Capability {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// All capabilities with a name here, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The kernel's name, without `CAP_`; `None` for a number that is newer than this list.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

capabilities! {
    /// Changing owners.
    CHOWN = 0;
    /// Files of others, whatever their mode.
    DAC_OVERRIDE = 1;
    /// Reading files of others, whatever their mode.
    DAC_READ_SEARCH = 2;
    /// What a file's owner may.
    FOWNER = 3;
    /// Keeping the set-id bits.
    FSETID = 4;
    /// Signals to processes of others.
    KILL = 5;
    /// Becoming another group.
    SETGID = 6;
    /// Becoming another user.
    SETUID = 7;
    /// Removing capabilities from the bounding set.
    SETPCAP = 8;
    /// Immutable files.
    LINUX_IMMUTABLE = 9;
    /// Ports below 1024.
    NET_BIND_SERVICE = 10;
    /// Broadcasts.
    NET_BROADCAST = 11;
    /// Interfaces and routes.
    NET_ADMIN = 12;
    /// Raw sockets.
    NET_RAW = 13;
    /// Locking memory.
    IPC_LOCK = 14;
    /// IPC objects of others.
    IPC_OWNER = 15;
    /// Kernel modules.
    SYS_MODULE = 16;
    /// Ports and `/dev/mem`.
    SYS_RAWIO = 17;
    /// Another root directory, and other mount namespaces.
    SYS_CHROOT = 18;
    /// Looking into processes of others.
    SYS_PTRACE = 19;
    /// Process accounting.
    SYS_PACCT = 20;
    /// Mounts, namespaces, and much else.
    SYS_ADMIN = 21;
    /// Restarting the machine.
    SYS_BOOT = 22;
    /// Priorities and memory placement of others.
    SYS_NICE = 23;
    /// Limits, and short pressure windows.
    SYS_RESOURCE = 24;
    /// The clock.
    SYS_TIME = 25;
    /// Terminals.
    SYS_TTY_CONFIG = 26;
    /// Device files.
    MKNOD = 27;
    /// Leases of files.
    LEASE = 28;
    /// Writing the audit log.
    AUDIT_WRITE = 29;
    /// Setting audit up.
    AUDIT_CONTROL = 30;
    /// Capabilities of files.
    SETFCAP = 31;
    /// Overriding a security module.
    MAC_OVERRIDE = 32;
    /// Setting a security module up.
    MAC_ADMIN = 33;
    /// The kernel's log.
    SYSLOG = 34;
    /// Timers that wake the machine.
    WAKE_ALARM = 35;
    /// Keeping the machine awake.
    BLOCK_SUSPEND = 36;
    /// Reading the audit log.
    AUDIT_READ = 37;
    /// Performance counters.
    PERFMON = 38;
    /// BPF programs.
    BPF = 39;
    /// Checkpoints.
    CHECKPOINT_RESTORE = 40;
}

impl Capability {
    /// Its bit in a set.
    pub fn bit(self) -> u64 {
        1 << self.0
    }

    fn set(self) -> CapabilitySet {
        CapabilitySet::from_bits_retain(self.bit())
    }
}

impl std::str::FromStr for Capability {
    type Err = UnknownCapability;

    /// Parses a name with or without the prefix: `SYS_NICE` or `CAP_SYS_NICE`.
    fn from_str(text: &str) -> Result<Self, UnknownCapability> {
        let short = text.strip_prefix("CAP_").unwrap_or(text);
        let known = Self::ALL.iter().copied().find(|capability| capability.name() == Some(short));
        known.ok_or_else(|| UnknownCapability(text.to_owned()))
    }
}

/// A name that no capability has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no capability `{0}`; the names are those of capabilities(7), such as SYS_RESOURCE")]
pub struct UnknownCapability(String);

/// The names in a set of capabilities as `/proc/PID/status` prints it. A bit without a name is printed as its number.
pub fn names(set: u64) -> Vec<String> {
    let numbers = (0..u64::BITS).filter(|number| set & (1 << number) != 0);
    numbers.map(|number| Capability(number).name().map_or_else(|| format!("{number}"), str::to_owned)).collect()
}

/// Drops all capabilities but these: permitted, effective, inheritable, ambient, and also from the bounding set if this process may.
pub(crate) fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let kept = kept.iter().fold(CapabilitySet::empty(), |set, capability| set | capability.set());
    // The bounding set comes first, because this needs CAP_SETPCAP. A process without CAP_SETPCAP is either in a container with few
    // capabilities, whose bounding set is small already, or cannot use the bounding set, since no_new_privs rules out gains by execve.
    for number in 0..u64::BITS {
        let capability = Capability(number).set();
        if kept.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(true) => {}
            Ok(false) => continue,
            // The kernel has no more capabilities.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno.into()),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    // There is nothing to clear before Linux 4.3.
    let _ = clear_ambient_capability_set();
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels_with_or_without_prefix() {
        assert_eq!("SYS_NICE".parse(), Ok(Capability::SYS_NICE));
        assert_eq!("CAP_SYS_NICE".parse(), Ok(Capability::SYS_NICE));
        for wrong in ["", "CAP_", "sys_nice", "NICE", "CAP_CAP_SYS_NICE"] {
            assert_eq!(wrong.parse::<Capability>(), Err(UnknownCapability(wrong.to_owned())));
        }
    }

    #[test]
    fn numbers_are_the_kernels() {
        // include/uapi/linux/capability.h
        for (capability, number) in [
            (Capability::CHOWN, 0),
            (Capability::DAC_READ_SEARCH, 2),
            (Capability::SETPCAP, 8),
            (Capability::SYS_PTRACE, 19),
            (Capability::SYS_ADMIN, 21),
            (Capability::SYS_NICE, 23),
            (Capability::SYS_RESOURCE, 24),
            (Capability::CHECKPOINT_RESTORE, 40),
        ] {
            assert_eq!(capability.bit(), 1 << number, "{capability:?}");
        }
        assert!(Capability::ALL.is_sorted() && Capability::ALL.len() == 41);
    }

    #[test]
    fn a_set_is_told_by_names() {
        assert_eq!(names(0), Vec::<String>::new());
        assert_eq!(names(0xc0), ["SETGID", "SETUID"]);
        assert_eq!(names(1 << 19 | 1 << 60), ["SYS_PTRACE", "60"]);
    }
}
