//! Runs qemu: in goes a kernel with files, out comes what the script printed and its exit code.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command;
use crate::interrupt::Interrupt;
use crate::workspace;

/// The emulator's program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// What the guest prints before the script; above it the firmware writes as it likes.
const BEGIN: &str = "qosm-vm: the script begins";
/// What the guest prints as its last line, before the exit code.
const END: &str = "qosm-vm: the script ended with ";

/// The guest's first process. It mounts what a container host has, runs the script and switches off.
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
for turn in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/nvme0n1 ] && break; sleep 0.5; done
mkdir -p /disk
mke2fs /dev/nvme0n1 >/dev/null && mount -t ext4 /dev/nvme0n1 /disk
chmod 755 /
cd /root
echo 'qosm-vm: the script begins'
sh /script </dev/null
echo "qosm-vm: the script ended with $?"
sync
poweroff -f
"#;

/// Boots and hands on each line that the script prints. Returns the script's exit code.
///
/// # Errors
///
/// When there is no qemu, the time is up, this process is asked to end, or the machine went down before the script ended; the latter
/// with the last lines of its console.
pub(crate) fn run(
    kernel: &Path,
    image: &Path,
    disk: &Path,
    limit: Duration,
    interrupt: &Interrupt,
    mut each: impl FnMut(&str),
) -> Result<u8> {
    let Some(qemu) = workspace::program(QEMU) else {
        bail!("there is no {QEMU}: run `make setup`, or as root `apt-get install qemu-system-x86`");
    };
    // It ends with this program, however that ends: a machine that nobody waits for would take its processors for 25 minutes.
    let mut command = match workspace::program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(qemu);
            command
        }
        None => Command::new(qemu),
    };
    // Without KVM, which is missing or hangs where this mostly runs: in a virtual machine already.
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "4", "-m", "1024"]);
    command.args(["-object", "memory-backend-ram,id=m0,size=512M", "-object", "memory-backend-ram,id=m1,size=512M"]);
    command.args(["-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1"]);
    command.args(["-nographic", "-no-reboot", "-nic", "none"]);
    let disk = format!("if=none,id=disk,format=raw,cache=unsafe,file={}", disk.display());
    command.args(["-drive", &disk, "-device", "nvme,serial=qosm,drive=disk"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
    command.args(["-append", "console=ttyS0 psi=1 quiet panic=-1 oops=panic"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = command.spawn().with_context(|| format!("{QEMU} cannot be started"))?;

    let console = machine.stdout.take().context("a piped command has no stdout")?;
    let complaints = machine.stderr.take().context("a piped command has no stderr")?;
    let complaints = thread::spawn(move || std::io::read_to_string(complaints).unwrap_or_default());
    let too_late = Arc::new(AtomicBool::new(false));
    let watch = {
        let too_late = Arc::clone(&too_late);
        let (deadline, interrupt) = (Instant::now() + limit, interrupt.clone());
        thread::spawn(move || -> std::io::Result<()> {
            while command::wait(&mut machine, Duration::from_millis(100))?.is_none() {
                let is_late = Instant::now() >= deadline;
                if is_late || interrupt.asked() {
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
        // Firmware or script may have left the marker's line begun.
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
