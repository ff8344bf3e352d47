//! Boots a guest with a kernel and files, and returns its script's output and exit code.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::registers;
use crate::command;
use crate::interrupt::Interrupt;
use crate::workspace;

/// Program of the emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Printed by the guest before the script; the firmware prints anything before it.
const BEGIN: &str = "qosm-vm: the script begins";
/// Printed by the guest on its last line, before the exit code.
const END: &str = "qosm-vm: the script ended with ";

/// Printed by a panicking kernel. User-mode Linux, as the first process of its namespace, then cannot end itself by a signal, and tries for
/// ever.
const PANIC: &str = "Kernel panic - not syncing";
/// Time for the rest of the panic message.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The guest's first process. It mounts the file systems of a container host, runs the script and powers off.
pub(crate) const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root USER=root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /root /var
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o size=75% tmpfs /tmp
mount -t tmpfs tmpfs /run
ln -s /run /var/run
ln -s /tmp /var/tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in cpu memory io cpuset pids; do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
echo 'nobody:x:65534:65534:nobody:/:/bin/false' >>/etc/passwd
echo 'root:x:0:' >/etc/group
echo 'nogroup:x:65534:' >>/etc/group
hostname vm
ip link set lo up
# The disk is found a moment after the system is up. Page cache that can be reclaimed needs a file system with blocks.
for turn in 1 2 3 4 5 6 7 8 9 10; do
    for disk in /dev/nvme0n1 /dev/ubda; do [ -b $disk ] && break 2; done
    sleep 0.5
done
mkdir -p /disk
mke2fs $disk >/dev/null && mount -t ext4 $disk /disk
chmod 755 /
cd /root
echo 'qosm-vm: the script begins'
sh /script </dev/null
echo "qosm-vm: the script ended with $?"
sync
poweroff -f
"#;

/// The machine of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Machine<'a> {
    /// An emulated one: 4 CPUs and 1 GiB on two NUMA nodes.
    Emulated,
    /// User-mode Linux at this path: a kernel that is an ordinary process, at this machine's speed. 1 CPU and 1 GiB, no cpusets, no PSI.
    UserMode(&'a Path),
}

/// Files that the machine boots from.
pub(crate) struct Media<'a> {
    /// For the emulated machine; user-mode Linux is a kernel itself.
    pub(crate) kernel: &'a Path,
    pub(crate) image: &'a Path,
    pub(crate) disk: &'a Path,
}

impl Machine<'_> {
    /// The command that runs the machine, which ends with this program, however it ends.
    ///
    /// # Errors
    ///
    /// If there is no such machine.
    pub(crate) fn command(self, media: &Media<'_>) -> Result<Command> {
        match self {
            Self::Emulated => emulated(media),
            Self::UserMode(program) => Ok(user_mode(program, media)),
        }
    }
}

fn emulated(media: &Media<'_>) -> Result<Command> {
    let Some(qemu) = workspace::program(QEMU) else {
        bail!("there is no {QEMU}: run `make setup`, or as root `apt-get install qemu-system-x86`");
    };
    // A machine without a parent would use the CPUs until its time limit.
    let mut command = match workspace::program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(qemu);
            command
        }
        None => Command::new(qemu),
    };
    // Without KVM, which is missing or hangs inside virtual machines, where this mostly runs.
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "4", "-m", "1024"]);
    command.args(["-object", "memory-backend-ram,id=m0,size=512M", "-object", "memory-backend-ram,id=m1,size=512M"]);
    command.args(["-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1"]);
    command.args(["-nographic", "-no-reboot", "-nic", "none"]);
    let disk = format!("if=none,id=disk,format=raw,cache=unsafe,file={}", media.disk.display());
    command.args(["-drive", &disk, "-device", "nvme,serial=qosm,drive=disk"]);
    command.arg("-kernel").arg(media.kernel).arg("-initrd").arg(media.image);
    command.args(["-append", "console=ttyS0 psi=1 quiet panic=-1 oops=panic"]);
    Ok(command)
}

/// Memory of user-mode Linux in MiB, in a file that it maps.
const USER_MODE_MIB: u64 = 1024;

fn user_mode(program: &Path, media: &Media<'_>) -> Command {
    let mut command = process(program, USER_MODE_MIB, media.disk);
    let option = |name: &str, file: &Path| format!("{name}={}", file.display());
    command.arg(option("initrd", media.image)).arg(option("ubd0", media.disk));
    command
}

/// Memory of a guest with systemd and a whole cluster, in MiB.
const SYSTEM_MIB: u64 = 3072;

/// User-mode Linux on a disk that it only reads; it writes to another file. `script` names the script to run.
pub(crate) fn system(program: &Path, written: &Path, disk: &Path, script: &Path) -> Command {
    let mut command = process(program, SYSTEM_MIB, written);
    command.arg(format!("ubd0={},{}", written.display(), disk.display())).args(["root=/dev/ubda", "rw"]);
    command.arg(format!("qosm.script={}", script.display()));
    command
}

/// The kernel's process. Its memory is in a file next to `beside` if /dev/shm is too small.
fn process(program: &Path, mib: u64, beside: &Path) -> Command {
    // Each process of the guest is a process here. It outlives a killed kernel, but not the first process of its namespace.
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let mine: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]).args(mine).args(namespace).arg(program);
    command.arg(format!("mem={mib}M"));
    command.args(["con=null", "con0=null,fd:1", "quiet", "panic=-1", "oops=panic"]);
    // By default it uses /dev/shm, of which a container has 64 MB.
    let shared = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(shared).is_ok_and(|room| room.f_bavail * room.f_frsize > mib << 21);
    if let Some(library) = registers::built(program) {
        command.env("LD_PRELOAD", library);
    }
    command.env("TMPDIR", if has_room { shared } else { beside.parent().unwrap_or(shared) });
    command
}

/// Boots a machine and calls `each` with each line that the script prints. Returns the script's exit code.
///
/// # Errors
///
/// If it cannot be started, the time is up, this process is asked to end, or the machine went down before the script ended; the last error
/// includes the last lines of the console.
/// latter with the last lines of its console.
pub(crate) fn run(
    mut command: Command,
    limit: Duration,
    interrupt: &Interrupt,
    mut each: impl FnMut(&str),
) -> Result<u8> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = command.spawn().with_context(|| format!("{} cannot be started", command::line(&command)))?;

    let console = machine.stdout.take().context("a piped command has no stdout")?;
    let complaints = machine.stderr.take().context("a piped command has no stderr")?;
    let complaints = thread::spawn(move || std::io::read_to_string(complaints).unwrap_or_default());
    let [too_late, panicked] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let watch = {
        let (too_late, panicked) = (Arc::clone(&too_late), Arc::clone(&panicked));
        let (deadline, interrupt) = (Instant::now() + limit, interrupt.clone());
        thread::spawn(move || -> std::io::Result<()> {
            while command::wait(&mut machine, Duration::from_millis(100))?.is_none() {
                let is_late = Instant::now() >= deadline;
                let is_over = panicked.load(Ordering::Relaxed);
                if is_over {
                    thread::sleep(LAST_WORDS);
                }
                if is_late || is_over || interrupt.asked() {
                    too_late.store(is_late, Ordering::Relaxed);
                    machine.kill()?;
                    machine.wait()?;
                    break;
                }
            }
            Ok(())
        })
    };

    let (mut began, mut code) = (false, None);
    let mut last = VecDeque::new();
    command::each_line(console, |line| {
        if line.contains(PANIC) {
            panicked.store(true, Ordering::Relaxed);
        }
        // Firmware or script may have printed text before the marker on its line.
        let (line, ended) = line.split_once(END).map_or((line, None), |(line, code)| (line, Some(code)));
        if line.ends_with(BEGIN) {
            began = true;
        } else if code.is_none() && !(line.is_empty() && ended.is_some()) {
            last.push_back(line.to_owned());
            last.drain(..last.len().saturating_sub(20));
            if began {
                each(line);
            }
        }
        code = code.or_else(|| ended?.trim().parse::<u8>().ok());
    })
    .context("the VM's console cannot be read")?;
    match watch.join() {
        Ok(ended) => ended.context("the VM cannot be waited for")?,
        Err(_) => bail!("the thread that watches the VM failed"),
    }
    if let Some(code) = code {
        return Ok(code);
    }
    if interrupt.asked() {
        bail!("interrupted");
    }
    if too_late.load(Ordering::Relaxed) {
        bail!("the VM did not finish within {} s", limit.as_secs());
    }
    let complaints = complaints.join().unwrap_or_default();
    last.push_back(complaints.trim().to_owned());
    bail!("the VM went down before the script ended; its last words:\n{}", Vec::from(last).join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_panics_and_does_not_end_is_ended_with_its_last_words() {
        let mut guest = Command::new("sh");
        guest.args([
            "-c",
            "echo 'Kernel panic - not syncing: Attempted to kill init!'; echo 'and why'; exec sleep 1000",
        ]);
        let interrupt = Interrupt::default();
        let error = run(guest, Duration::from_secs(900), &interrupt, |_| {}).unwrap_err().to_string();
        assert!(error.contains("went down") && error.contains("and why"), "{error}");
    }
}
