//! Guests with cgroup v2, for what this machine's kernel cannot show: user-mode Linux, which is as fast as this machine, and an emulated
//! machine with several CPUs and two NUMA nodes. [`System`] is a complete Debian with systemd in user-mode Linux.
//!
//! [`guest`] fetches kernels and a shell, [`initramfs`] packs them with the programs under test, [`boot`] runs the guest. Only the
//! processor is emulated: the cgroup files in the guest are those of a real kernel.

mod boot;
mod guest;
mod initramfs;
mod registers;
mod system;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::tree::Tree;
use crate::workspace::Workspace;

pub(crate) use boot::QEMU;
use boot::{Machine, Media};
pub(crate) use system::{System, prepare as prepare_system};

/// Size of the disk in bytes. The file is sparse and takes only the space that is written.
const DISK_BYTES: u64 = 1 << 30;

/// What can be done with the VM.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Boots, runs a shell script inside and ends with its exit code.
    ///
    /// The guest has root, busybox, cgroup v2 on /sys/fs/cgroup with cpu, memory, io, cpuset and pids enabled for its children, 4 CPUs and
    /// 1 GiB on two NUMA nodes, PSI, a loopback device, an empty disk on /disk, and no files of this machine except the given ones.
    Run(Args),
}

/// What to run inside.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File or folder of this machine, and its path in the guest. Shared libraries of programs are copied, too.
    #[arg(long = "file", value_name = "HOST:GUEST", value_parser = parse_share)]
    files: Vec<Share>,
    /// The shell script to run.
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
    /// Runs in user-mode Linux: one CPU at this machine's speed, no NUMA nodes, no cpusets, no PSI.
    #[arg(long)]
    user_mode: bool,
    /// Runs in user-mode Linux with systemd as its first process; this machine's files are readable below /host.
    #[arg(long, conflicts_with_all = ["user_mode", "files"])]
    systemd: bool,
    /// Time limit of the machine in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
}

/// A file or folder of this machine, and its path in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Path on this machine.
    pub(crate) host: PathBuf,
    /// Absolute path in the guest.
    pub(crate) guest: PathBuf,
}

fn parse_share(text: &str) -> Result<Share, String> {
    let (host, guest) = text.split_once(':').ok_or("write it as HOST:GUEST")?;
    if !guest.starts_with('/') {
        return Err(format!("`{guest}` is no absolute path in the guest"));
    }
    Ok(Share { host: host.into(), guest: guest.into() })
}

/// Fetches the kernels and the shell into the cache, unless they are there.
///
/// # Errors
///
/// When they are not in the cache and apt cannot download them.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    guest::find_or_fetch(workspace)?;
    guest::fetch_user_mode(workspace)
}

/// Runs a script file in the VM, with the console on stdout. Returns the script's exit code.
///
/// # Errors
///
/// When the machine does not boot, does not finish in time, or this process is asked to end before.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let script = std::fs::read_to_string(&args.script)
        .with_context(|| format!("the script {} cannot be read", args.script.display()))?;
    let (limit, interrupt) = (Duration::from_secs(args.timeout), Interrupt::listen()?);
    let print = |line: &str| println!("{line}");
    let code = if args.systemd {
        prepare_system(workspace)?;
        let system = System::fresh(workspace)?;
        let system = system.context("there is no user-mode Linux here: only Debian has a package of it")?;
        system.boot(&script, limit, &interrupt, print)?
    } else if args.user_mode {
        script_in_user_mode(workspace, &args.files, &script, limit, &interrupt, print)?
    } else {
        script_in_vm(workspace, &args.files, &script, limit, &interrupt, print)?
    };
    Ok(ExitCode::from(code))
}

/// Like [`run`] in the emulated machine, but takes the script as text and calls `each` with each line of the console.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn script_in_vm(
    workspace: &Workspace,
    files: &[Share],
    script: &str,
    limit: Duration,
    interrupt: &Interrupt,
    each: impl FnMut(&str),
) -> Result<u8> {
    let guest = guest::find_or_fetch(workspace)?;
    script_in(Machine::Emulated, &guest, files, script, limit, interrupt, each)
}

/// Like [`script_in_vm`] in user-mode Linux, or in the emulated machine if there is no user-mode Linux.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn script_in_user_mode(
    workspace: &Workspace,
    files: &[Share],
    script: &str,
    limit: Duration,
    interrupt: &Interrupt,
    each: impl FnMut(&str),
) -> Result<u8> {
    let guest = guest::find_or_fetch(workspace)?;
    let machine = guest.user_mode.as_deref().map_or(Machine::Emulated, Machine::UserMode);
    script_in(machine, &guest, files, script, limit, interrupt, each)
}

fn script_in(
    machine: Machine<'_>,
    guest: &guest::Guest,
    files: &[Share],
    script: &str,
    limit: Duration,
    interrupt: &Interrupt,
    each: impl FnMut(&str),
) -> Result<u8> {
    let folder = tempfile::tempdir().context("no folder for the VM's files")?;
    let (image, disk) = (folder.path().join("initramfs"), folder.path().join("disk"));
    pack(guest, files, script, &image).context("the VM's files cannot be packed")?;
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
    made.context("the VM's disk cannot be made")?;
    let media = Media { kernel: &guest.kernel, image: &image, disk: &disk };
    boot::run(machine.command(&media)?, limit, interrupt, each)
}

fn pack(guest: &guest::Guest, files: &[Share], script: &str, image: &Path) -> Result<()> {
    let mut tree = Tree::default();
    tree.add_program(&guest.busybox, Path::new("/bin/busybox"))?;
    tree.add_script(Path::new("/init"), boot::INIT);
    tree.add_script(Path::new("/script"), script);
    for share in files {
        tree.add(&share.host, &share.guest)?;
    }
    initramfs::write(tree, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_names_both_places() {
        let share = Share { host: "a/b".into(), guest: "/bin/b".into() };
        assert_eq!(parse_share("a/b:/bin/b"), Ok(share));
        assert!(parse_share("a/b").is_err());
        assert!(parse_share("a/b:bin/b").is_err());
    }
}
