//! What a confined process can do and what it cannot. Each test confines a child that runs the same test program, since
//! a confinement cannot be undone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use qosm_confinement::{Access, Capability, Confinement, Landlock, Seccomp, SeccompMode, Status, loaded_files};
use rustix::io::Errno;

/// The environment variable with the scenario that a child plays; `FOLDER` is the one with its folder.
const SCENARIO: &str = "QOSM_TEST_SCENARIO";
const FOLDER: &str = "QOSM_TEST_FOLDER";

type Scenario = fn(&Path);

const SCENARIOS: [(&str, Scenario); 9] = [
    ("paths outside are refused and those inside are not", paths),
    ("a link does not lead outside", links),
    ("a replaced file is found by its folder", replaced),
    ("programs are not started", programs),
    ("what reaches the kernel or other processes is refused", dangerous_calls),
    ("capabilities do not come back", capabilities),
    ("a process with other threads is not confined by half", several_threads),
    ("a process that waits too long is ended", waiting),
    ("a computing process opens and starts nothing", computing),
];

/// A custom test harness: the child must not have other threads when it confines itself.
fn main() -> ExitCode {
    if let Some(scenario) = std::env::var_os(SCENARIO) {
        let folder = std::env::var_os(FOLDER).unwrap();
        let (_, play) = SCENARIOS.into_iter().find(|(name, _)| *name == scenario).unwrap();
        play(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed, mut filtered) = (0, 0, 0);
    for (name, _) in SCENARIOS {
        if !name.contains(&filter) {
            filtered += 1;
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        for place in ["inside", "outside"] {
            fs::create_dir(folder.path().join(place)).unwrap();
            fs::write(folder.path().join(place).join("file"), place).unwrap();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .env(SCENARIO, name)
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        let good = if name.ends_with("is ended") {
            child.status.signal() == Some(libc::SIGALRM)
        } else {
            child.status.success()
        };
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
        if good {
            passed += 1;
        } else {
            failed += 1;
            println!("{}\n{}", child.status, String::from_utf8_lossy(&child.stderr));
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out; finished in 0.00s"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All that the scenarios need to run at all, and the folder `inside`.
fn base(folder: &Path, seccomp: Seccomp) -> Confinement {
    Confinement::new(seccomp)
        .allow("/proc", Access::Read)
        .allow("/dev/null", Access::Change)
        .allow(folder.join("inside"), Access::Own)
}

#[track_caller]
fn refused<T>(result: io::Result<T>, errno: Errno) {
    match result {
        Ok(_) => panic!("it was let through"),
        Err(error) => assert_eq!(Errno::from_io_error(&error), Some(errno), "{error}"),
    }
}

#[track_caller]
fn enter(confinement: Confinement) -> qosm_confinement::Entered {
    let entered = confinement.enter().unwrap();
    assert!(entered.landlock.is_enforced(), "{}: these tests need Linux 5.13 with Landlock", entered.landlock);
    entered
}

fn paths(folder: &Path) {
    let confinement = base(folder, Seccomp::Dangerous).allow(folder.join("nowhere"), Access::Read);
    let entered = enter(confinement);
    assert_eq!(entered.missing.len(), 1);
    assert_eq!(entered.missing[0].1.kind(), io::ErrorKind::NotFound);
    refused(fs::read(folder.join("outside/file")), Errno::ACCESS);
    refused(fs::write(folder.join("outside/file"), "x"), Errno::ACCESS);
    refused(fs::write(folder.join("outside/new"), "x"), Errno::ACCESS);
    refused(fs::create_dir(folder.join("outside/new")), Errno::ACCESS);
    refused(fs::remove_file(folder.join("outside/file")), Errno::ACCESS);
    refused(fs::read_dir("/etc"), Errno::ACCESS);
    refused(fs::read("/etc/shadow"), Errno::ACCESS);
    let inside = folder.join("inside");
    assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "inside");
    fs::create_dir(inside.join("folder")).unwrap();
    fs::write(inside.join("folder/new"), "more").unwrap();
    fs::rename(inside.join("folder/new"), inside.join("file")).unwrap();
    assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "more");
    fs::remove_dir(inside.join("folder")).unwrap();
    std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    // A thread that is started afterwards is confined as well.
    let file = folder.join("outside/file");
    refused(std::thread::spawn(move || fs::read(file)).join().unwrap(), Errno::ACCESS);
    let status = std::thread::spawn(|| Status::read().unwrap()).join().unwrap();
    assert!(status.no_new_privileges && status.seccomp != SeccompMode::Off && status.effective == 0, "{status:?}");
}

fn links(folder: &Path) {
    let inside = folder.join("inside");
    std::os::unix::fs::symlink("../outside/file", inside.join("link")).unwrap();
    enter(base(folder, Seccomp::Dangerous));
    refused(fs::read(inside.join("link")), Errno::ACCESS);
    // A link that a folder's rules forbid fails as if the folder were on another file system.
    refused(fs::hard_link(folder.join("outside/file"), inside.join("hard")), Errno::XDEV);
    refused(fs::rename(folder.join("outside/file"), inside.join("moved")), Errno::ACCESS);
}

fn replaced(folder: &Path) {
    enter(base(folder, Seccomp::Dangerous).allow(folder.join("outside/file"), Access::Read));
    assert_eq!(fs::read_to_string(folder.join("outside/file")).unwrap(), "outside");
    let inside = folder.join("inside");
    fs::write(inside.join("new"), "newer").unwrap();
    fs::rename(inside.join("new"), inside.join("file")).unwrap();
    assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "newer");
}

fn programs(folder: &Path) {
    let loaded = loaded_files().unwrap();
    let confinement = loaded
        .iter()
        .fold(base(folder, Seccomp::Dangerous), |confinement, file| confinement.allow(file, Access::Execute));
    fs::copy("/bin/true", folder.join("inside/true")).unwrap();
    enter(confinement);
    refused(Command::new("/bin/true").status(), Errno::ACCESS);
    // Not even a program that the process wrote itself.
    refused(Command::new(folder.join("inside/true")).status(), Errno::ACCESS);
    // The process may start its own program again, which compiles modules.
    let child = Command::new("/proc/self/exe").env_remove(SCENARIO).arg("no scenario has this name").output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

#[expect(unsafe_code, reason = "these calls have no safe wrapper, or none that is not checked in user space first")]
fn call(number: libc::c_long, arguments: [u64; 3]) -> io::Result<()> {
    // SAFETY: the arguments are numbers, or null where the call takes a pointer; a filter is expected to refuse the call, and one that
    // comes through fails on them or ends in this process, which is the test's own.
    let returned = unsafe { libc::syscall(number, arguments[0], arguments[1], arguments[2], 0_u64, 0_u64) };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn dangerous_calls(folder: &Path) {
    let before = Status::read().unwrap();
    let confinement = base(folder, Seccomp::Dangerous).keep(Capability::ALL.iter().copied()).all_paths();
    let entered = confinement.enter().unwrap();
    assert_eq!(entered.landlock, Landlock::NotAsked);
    assert!(entered.filtered, "a filter was in force before this test");
    // The process keeps all its capabilities, so the filter alone refuses.
    let status = Status::read().unwrap();
    assert_eq!((status.effective, status.bounding), (before.effective, before.bounding));
    let parent = u64::from(rustix::process::getppid().unwrap().as_raw_pid().unsigned_abs());
    let namespace = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    const PTRACE_SEIZE: u64 = 0x4206;
    for (name, number, arguments) in [
        ("ptrace", libc::SYS_ptrace, [PTRACE_SEIZE, parent, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [parent, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [0, 0, 0]),
        ("kcmp", libc::SYS_kcmp, [parent, parent, 0]),
        ("unshare", libc::SYS_unshare, [namespace, 0, 0]),
        ("setns", libc::SYS_setns, [0, 0, 0]),
        ("clone", libc::SYS_clone, [namespace | 17, 0, 0]),
        ("mount", libc::SYS_mount, [0, 0, 0]),
        ("umount2", libc::SYS_umount2, [0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0]),
        ("init_module", libc::SYS_init_module, [0, 0, 0]),
        ("move_pages", libc::SYS_move_pages, [0, 0, 0]),
        ("socket of packets", libc::SYS_socket, [17, 3, 0]),
        ("socket of the kernel's cryptography", libc::SYS_socket, [38, 5, 0]),
        #[cfg(target_arch = "x86_64")]
        ("ptrace as x32 calls it", 0x4000_0000 | 521, [PTRACE_SEIZE, parent, 0]),
        #[cfg(target_arch = "x86_64")]
        ("unshare as x32 calls it", 0x4000_0000 | libc::SYS_unshare, [namespace, 0, 0]),
    ] {
        let Err(error) = call(number, arguments) else { panic!("{name} was let through") };
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{name}: {error}");
    }
    refused(call(libc::SYS_clone3, [0, 0, 0]), Errno::NOSYS);
    // Ordinary work still succeeds.
    std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::spawn(|| ()).join().unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success());
    // A second filter is not added.
    assert!(!Confinement::new(Seccomp::Dangerous).all_paths().enter().unwrap().filtered);
}

fn capabilities(folder: &Path) {
    let kept = [Capability::SETUID, Capability::SYS_PTRACE];
    let before = Status::read().unwrap();
    enter(base(folder, Seccomp::All).keep(kept).allow("/", Access::Execute));
    let kept_bits = kept.iter().fold(0, |bits, capability| bits | capability.bit());
    let status = Status::read().unwrap();
    assert_eq!(status.effective, before.effective & kept_bits);
    if before.effective & Capability::SETPCAP.bit() != 0 {
        assert_eq!(status.bounding, before.bounding & kept_bits);
    }
    // Root would gain all capabilities by execve, were it not for the bounding set and no_new_privs.
    let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let child = Status::parse(&String::from_utf8(child.stdout).unwrap()).unwrap();
    assert!(child.no_new_privileges);
    assert_eq!(child.effective & !(before.effective & kept_bits), 0, "{child:?}");
}

fn several_threads(folder: &Path) {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || held.recv().is_err());
    let before = Status::read().unwrap();
    let error = base(folder, Seccomp::Dangerous).enter().unwrap_err();
    assert!(matches!(error, qosm_confinement::ConfinementError::Threads(2)), "{error}");
    assert_eq!(Status::read().unwrap(), before);
    fs::read(folder.join("outside/file")).unwrap();
    drop(hold);
    assert!(thread.join().unwrap());
    enter(base(folder, Seccomp::Dangerous));
    refused(fs::read(folder.join("outside/file")), Errno::ACCESS);
}

fn waiting(_: &Path) {
    let (reader, _writer) = io::pipe().unwrap();
    qosm_confinement::end_after(Duration::from_millis(10));
    enter(Confinement::new(Seccomp::Compute));
    // The alarm can no longer be put off.
    refused(call(libc::SYS_setitimer, [0, 0, 0]), Errno::PERM);
    refused(call(libc::SYS_rt_sigaction, [14, 0, 0]), Errno::PERM);
    io::read_to_string(reader).unwrap();
}

fn computing(folder: &Path) {
    let file = folder.join("inside/file");
    let open = fs::File::open(&file).unwrap();
    enter(Confinement::new(Seccomp::Compute));
    refused(fs::read(&file), Errno::PERM);
    refused(Command::new("/bin/true").status(), Errno::PERM);
    refused(std::thread::Builder::new().spawn(|| ()), Errno::PERM);
    refused(std::net::TcpListener::bind("127.0.0.1:0"), Errno::PERM);
    assert_eq!(io::read_to_string(open).unwrap(), "inside");
    // Memory large enough to be mapped, and grown.
    let mut bytes = vec![1_u8; 8 << 20];
    bytes.resize(64 << 20, 2);
    assert_eq!(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>(), (8 << 20) + 2 * (56 << 20));
}
