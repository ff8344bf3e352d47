//! Whether resctrl is available on this machine, and if not, what is missing.

use std::fmt;
use std::io;

use cap_std::fs::Dir;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::error::ResctrlError;
use crate::error::errno_name;
use crate::mounts::{self, Mount};

/// The kernel's usual mount point of resctrl, which other programs expect.
pub const USUAL_PATH: &str = "/sys/fs/resctrl";

/// [`USUAL_PATH`] below `/sys`.
const BELOW_SYS: &str = "fs/resctrl";

/// Whether resctrl is available; `Display` also prints what to do if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The processor supports resctrl, but the kernel does not.
    NoKernelSupport {
        /// The flags of [`Processor::FLAGS`] that the processor has.
        flags: Vec<&'static str>,
        /// The `rdt=…` option of the kernel's command line, if there is one.
        command_line: Option<String>,
    },
    /// Neither processor nor kernel support resctrl, as in most virtual machines.
    NoHardware {
        /// Vendor of the processor.
        vendor: Vendor,
    },
    /// resctrl can be mounted; see [`mount`].
    NotMounted {
        /// The mount point to use.
        path: String,
    },
    /// resctrl is not mounted at the configured path.
    Elsewhere {
        /// The configured path.
        path: String,
        /// Type of the file system that is mounted there; `None` if there is none.
        kind: Option<String>,
    },
    /// resctrl is mounted.
    Mounted {
        /// The mount point.
        path: String,
        /// Its mount options.
        options: MountOptions,
        /// Whether it is an emulation instead of the kernel's resctrl.
        is_emulated: bool,
    },
}

/// Vendor of the processor, which determines the unit of bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// `GenuineIntel`.
    Intel,
    /// `AuthenticAMD`, and Hygon, whose processors derive from AMD's.
    Amd,
    /// Another vendor.
    #[default]
    Other,
}

impl Vendor {
    /// The vendor that an emulation emulates: `/proc/cpuinfo` only describes the machine that it runs on. AMD's
    /// bandwidth is not linear (`delay_linear` is 0).
    pub(crate) fn of_emulation(root: &Dir) -> Self {
        match root.read("info/MB/delay_linear") {
            Ok(text) if text.trim_ascii() == b"0" => Self::Amd,
            _ => Self::Intel,
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Intel => "Intel",
            Self::Amd => "AMD",
            Self::Other => "other",
        })
    }
}

/// Mount options of resctrl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MountOptions {
    /// Code and data of the level-3 cache have separate masks.
    pub cdp: bool,
    /// Code and data of the level-2 cache have separate masks.
    pub cdpl2: bool,
    /// The unit of bandwidth is MB/s.
    pub mba_mbps: bool,
    /// resctrl has additional files for debugging (since Linux 6.7).
    pub debug: bool,
}

impl MountOptions {
    fn parse(text: &str) -> Self {
        let has = |option| text.split(',').any(|word| word == option);
        Self { cdp: has("cdp"), cdpl2: has("cdpl2"), mba_mbps: has("mba_MBps"), debug: has("debug") }
    }
}

/// Facts about the first processor in `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Its vendor.
    pub vendor: Vendor,
    /// The flags of [`Processor::FLAGS`] that it has.
    pub flags: Vec<&'static str>,
}

impl Processor {
    /// The processor flags related to resctrl. Any of them suffices: a machine may have only masks, bandwidth or monitoring.
    pub const FLAGS: [&str; 10] = [
        "cat_l3",
        "cat_l2",
        "cdp_l3",
        "cdp_l2",
        "mba",
        "smba",
        "cqm_llc",
        "cqm_occup_llc",
        "cqm_mbm_total",
        "cqm_mbm_local",
    ];

    /// Reads `/proc/cpuinfo`.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`].
    pub fn read(proc: &Dir) -> Result<Self, ResctrlError> {
        let text = proc.read("cpuinfo").map_err(|source| unreadable("/proc/cpuinfo", source))?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            fields.into_iter().find(|(key, _)| key.trim_ascii() == name).map_or("", |(_, value)| value.trim_ascii())
        };
        let vendor = match field("vendor_id") {
            "GenuineIntel" => Vendor::Intel,
            "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
            _ => Vendor::Other,
        };
        let has = field("flags");
        let flags = Self::FLAGS.into_iter().filter(|flag| has.split_ascii_whitespace().any(|word| word == *flag));
        Self { vendor, flags: flags.collect() }
    }
}

fn unreadable(path: &str, source: io::Error) -> ResctrlError {
    ResctrlError::Read { path: path.to_owned(), source }
}

/// Detects resctrl; changes nothing. `proc` is `/proc`.
///
/// `at` is the configured mount point, if any; only there an emulation counts, too. Otherwise any mount of the kernel's
/// resctrl that this process sees counts, [`USUAL_PATH`] first.
///
/// # Errors
///
/// [`ResctrlError::Read`] for `/proc/self/mountinfo`, `/proc/filesystems` and `/proc/cpuinfo`.
pub fn detect(proc: &Dir, at: Option<&str>) -> Result<Availability, ResctrlError> {
    let mounts = mounts::parse(&text(proc, "self/mountinfo")?);
    if let Some(found) = mounted(&mounts, at) {
        return Ok(found);
    }
    let text = |file: &str| text(proc, file);
    // The kernel registers the file system only on machines with a resource to divide or to measure.
    let is_known = text("filesystems")?.lines().any(|line| line.split_ascii_whitespace().next_back() == Some(KIND));
    if is_known {
        return Ok(Availability::NotMounted { path: at.unwrap_or(USUAL_PATH).to_owned() });
    }
    if let Some(path) = at {
        let kind = mounts.iter().rev().find(|mount| mount.point == path).map(|mount| mount.kind.clone());
        return Ok(Availability::Elsewhere { path: path.to_owned(), kind });
    }
    let processor = Processor::read(proc)?;
    if processor.flags.is_empty() {
        return Ok(Availability::NoHardware { vendor: processor.vendor });
    }
    let command_line = text("cmdline").unwrap_or_default();
    let command_line = command_line.split_ascii_whitespace().find(|word| word.starts_with("rdt=")).map(str::to_owned);
    Ok(Availability::NoKernelSupport { flags: processor.flags, command_line })
}

/// Like [`detect`], but returns `None` if resctrl is not mounted, without finding out why.
///
/// # Errors
///
/// [`ResctrlError::Read`] for `/proc/self/mountinfo`.
pub(crate) fn find_mount(proc: &Dir, at: Option<&str>) -> Result<Option<Availability>, ResctrlError> {
    Ok(mounted(&mounts::parse(&text(proc, "self/mountinfo")?), at))
}

fn text(proc: &Dir, file: &str) -> Result<String, ResctrlError> {
    match proc.read(file) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(source) => Err(unreadable(&format!("/proc/{file}"), source)),
    }
}

const KIND: &str = "resctrl";

/// Type of a FUSE mount that presents itself as resctrl.
const EMULATED: &str = "fuse.resctrl";

fn mounted(mounts: &[Mount], at: Option<&str>) -> Option<Availability> {
    // A mount hides an earlier mount at the same place.
    let visible = |mount: &&Mount| mounts.iter().rfind(|other| other.point == mount.point) == Some(*mount);
    let found = match at {
        Some(path) => mounts
            .iter()
            .filter(visible)
            .find(|mount| mount.point == path && [KIND, EMULATED].contains(&&*mount.kind))?,
        None => {
            let all = || mounts.iter().filter(visible).filter(|mount| mount.kind == KIND && mount.root == "/");
            all().find(|mount| mount.point == USUAL_PATH).or_else(|| all().next())?
        }
    };
    Some(Availability::Mounted {
        path: found.point.clone(),
        options: MountOptions::parse(&found.options),
        is_emulated: found.kind == EMULATED,
    })
}

/// Mounts resctrl without options at `fs/resctrl` of the given `/sys`, and opens it. Call it only when needed: mounting
/// divides the machine's caches, though initially without a change. This function never unmounts, since unmounting ends
/// all groups, including those of other programs.
///
/// A mount in a container's own mount namespace ends with the container, together with its groups, and blocks every
/// other mount until then. To keep the mount, mount resctrl on the node first; the container then sees that mount.
///
/// # Errors
///
/// [`ResctrlError::Mount`] with a remedy, [`ResctrlError::Read`] if the new mount cannot be opened.
pub fn mount(sys: &Dir) -> Result<Dir, ResctrlError> {
    use std::os::fd::AsRawFd as _;
    let point = sys.open_dir(BELOW_SYS).map_err(|source| not_mounted(USUAL_PATH, source))?;
    // Use the descriptor: `sys` need not be `/sys`.
    let target = format!("/proc/self/fd/{}", point.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(KIND, target, KIND, flags, None).map_err(|errno| not_mounted(USUAL_PATH, errno.into()))?;
    // The old descriptor still refers to the directory below the mount.
    sys.open_dir(BELOW_SYS).map_err(|source| unreadable(USUAL_PATH, source))
}

fn not_mounted(path: &str, source: io::Error) -> ResctrlError {
    let way_out = match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => {
            "it is mounted already, in a mount namespace that is not this one's: let this container see the node's mount \
             (hostPath /sys/fs/resctrl, mountPropagation HostToContainer), or unmount it there"
        }
        Some(Errno::NODEV) => {
            "the kernel has no resctrl for this machine: see what `qosm doctor` says about it, and the kernel's command line (rdt=)"
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "this process may not mount: give it CAP_SYS_ADMIN and a seccomp profile that allows mount, or mount it on the node \
             before, by `mount -t resctrl resctrl /sys/fs/resctrl`"
        }
        Some(Errno::NOENT) => {
            "the kernel makes this directory where it has resctrl: see what `qosm doctor` says about it"
        }
        _ => "try `mount -t resctrl resctrl /sys/fs/resctrl` on the node, and see what the kernel's log says about it",
    };
    ResctrlError::Mount { path: path.to_owned(), errno: errno_name(&source), way_out, source }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernelSupport { flags, command_line } => {
                write!(f, "not in this kernel, though the processor has {}: ", flags.join(", "))?;
                match command_line {
                    Some(option) => write!(f, "take `{option}` off the kernel's command line"),
                    None => f.write_str("use one with CONFIG_X86_CPU_RESCTRL"),
                }
            }
            Self::NoHardware { vendor } => write!(
                f,
                "not on this machine: the processor ({vendor}) shows neither cat_l3, cat_l2, mba nor cqm; virtual machines seldom do, \
                 so use bare metal"
            ),
            Self::NotMounted { path } => write!(f, "not mounted: `mount -t resctrl resctrl {path}` makes it usable"),
            Self::Elsewhere { path, kind: Some(kind) } => {
                write!(f, "not at {path}, where a file system of type {kind} is mounted: name the place where it is")
            }
            Self::Elsewhere { path, kind: None } => {
                write!(f, "not at {path}, where nothing is mounted: mount it there, or name the place where it is")
            }
            Self::Mounted { path, options, is_emulated } => {
                write!(f, "mounted at {path}")?;
                for (is_set, option) in [
                    (*is_emulated, "emulated, without effect on the processor"),
                    (options.cdp, "code and data apart in L3"),
                    (options.cdpl2, "code and data apart in L2"),
                    (options.mba_mbps, "bandwidth in MB/s"),
                ] {
                    if is_set {
                        write!(f, ", {option}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
