//! The tree as a file system of this machine. Needs root and `/dev/fuse`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qosm_resctrl_fuse::{
    Bytes, BytesPerSecond, Clock, CounterFault, Demand, Errno, Event, MountError, Mounted, Proc, Profile, RemovedFiles,
    SharedTree, Tree, mount,
};
use tempfile::TempDir;

/// A mount that is removed at the end of the test.
struct Mount {
    // Before the directory, so that it is unmounted before the directory is removed.
    mounted: Mounted,
    directory: TempDir,
}

impl Mount {
    fn of(profile: Profile, clock: Clock) -> Self {
        let directory = TempDir::new().unwrap();
        let tree: SharedTree = Arc::new(Mutex::new(Tree::new(profile, Proc::new()).unwrap()));
        Self { mounted: mount(tree, directory.path(), clock).unwrap(), directory }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn write(&self, path: &str, text: &str) -> Result<(), Errno> {
        // One call of `write`, which is one command.
        let written =
            OpenOptions::new().write(true).open(self.path(path)).and_then(|mut file| file.write(text.as_bytes()));
        assert_eq!(written.as_ref().map_or(text.len(), |written| *written), text.len());
        written.map(|_| ()).map_err(|error| errno(&error))
    }

    fn mkdir(&self, path: &str) -> Result<(), Errno> {
        fs::create_dir(self.path(path)).map_err(|error| errno(&error))
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

/// A shell that waits for lines to run.
struct Shell(Child, BufReader<std::process::ChildStdout>);

impl Shell {
    fn start() -> Self {
        let mut shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(shell.stdout.take().unwrap());
        Self(shell, output)
    }

    /// Runs a command that prints one line.
    fn run(&mut self, command: &str) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn it_is_mounted_as_resctrl_and_unmounted_on_drop() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let at = mount.directory.path().to_str().unwrap().to_owned();
    let line = mounts().lines().find(|line| line.contains(&at)).unwrap().to_owned();
    assert!(line.starts_with(&format!("resctrl {at} fuse.resctrl rw,")), "{line}");
    let again = TempDir::new().unwrap();
    let refused = qosm_resctrl_fuse::mount(mount.mounted.tree().clone(), again.path(), Clock::Stepped);
    assert!(matches!(refused, Err(MountError::Busy)));
    mount.mkdir("g").unwrap();
    mount.write("schemata", "L3:0=f\n").unwrap();
    let tree = mount.mounted.tree().clone();
    drop(mount);
    assert!(!mounts().contains(&at));
    // As after umount: everything is in its initial state.
    let mut tree = tree.lock().unwrap();
    assert_eq!(tree.read("schemata").unwrap(), b"    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    assert!(tree.list("g").is_err());
}

#[test]
fn an_open_file_does_not_keep_the_mount_point() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    let at = mount.directory.path().to_str().unwrap().to_owned();
    let open = File::open(mount.path("schemata")).unwrap();
    let Mount { mounted, directory } = mount;
    assert!(matches!(mounted.unmount(), Err(MountError::Unmount { .. })));
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&at));
    drop(open);
    directory.close().unwrap();
}

#[test]
fn commands_answer_as_the_kernel_does() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    mount.mkdir("g").unwrap();
    mount.write("g/schemata", "L3:0=3\nMB:1=25\n").unwrap();
    assert_eq!(mount.read("g/schemata"), "    MB:0=100;1=30\n    L3:0=3;1=7ff\n");
    for (path, text, errno, status) in [
        ("g/schemata", "L3:0=5\n", Errno::INVAL, "The mask 5 has non-consecutive 1-bits\n"),
        ("g/tasks", "999999999\n", Errno::SRCH, "No task 999999999\nError while processing task 999999999\n"),
        ("g/mode", "exclusive\n", Errno::INVAL, "Schemata overlaps\n"),
        ("g/cpus_list", "99\n", Errno::RANGE, "Bad CPU list/mask\n"),
    ] {
        assert_eq!(mount.write(path, text), Err(errno), "{path} {text:?}");
        assert_eq!(mount.read("info/last_cmd_status"), status);
    }
    assert_eq!(mount.write("g/schemata", &"x".repeat(300_000)), Err(Errno::TOOBIG));
    for (path, errno) in [("g", Errno::EXIST), ("info/x", Errno::NODEV), ("g/x", Errno::PERM), ("a\nb", Errno::INVAL)] {
        assert_eq!(mount.mkdir(path), Err(errno), "{path}");
    }
    for path in ["info", "g/mon_data"] {
        assert_eq!(errno(&fs::remove_dir(mount.path(path)).unwrap_err()), Errno::PERM, "{path}");
    }
    assert_eq!(errno(&fs::remove_file(mount.path("g/tasks")).unwrap_err()), Errno::PERM);
    assert_eq!(File::create(mount.path("g/new")).unwrap_err().kind(), ErrorKind::PermissionDenied);
    mount.mkdir("g/mon_groups/m").unwrap();
    fs::rename(mount.path("g/mon_groups/m"), mount.path("mon_groups/n")).unwrap();
    assert!(mount.path("mon_groups/n/tasks").exists() && !mount.path("g/mon_groups/m").exists());
    fs::remove_dir(mount.path("g")).unwrap();
    assert!(!mount.path("g").exists());
}

#[test]
fn read_only_files_cannot_be_opened_for_writing() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    for path in ["size", "info/L3/cbm_mask", "mon_data/mon_L3_00/llc_occupancy"] {
        let refused = OpenOptions::new().write(true).open(mount.path(path)).unwrap_err();
        assert_eq!(errno(&refused), Errno::INVAL, "{path}");
        assert_eq!(fs::metadata(mount.path(path)).unwrap().permissions().mode(), 0o100_444);
    }
    let metadata = fs::metadata(mount.path("tasks")).unwrap();
    assert_eq!((metadata.permissions().mode(), metadata.uid(), metadata.len()), (0o100_644, 0, 0));
    fs::set_permissions(mount.path("tasks"), fs::Permissions::from_mode(0o664)).unwrap();
    std::os::unix::fs::chown(mount.path("tasks"), Some(1000), None).unwrap();
    let metadata = fs::metadata(mount.path("tasks")).unwrap();
    assert_eq!((metadata.permissions().mode(), metadata.uid()), (0o100_664, 1000));
}

#[test]
fn an_open_file_outlives_its_group_and_reports_its_end() {
    for (removed_files, expected) in [(RemovedFiles::Enoent, Errno::NOENT), (RemovedFiles::Enodev, Errno::NODEV)] {
        let mount = Mount::of(Profile { removed_files, ..Profile::intel() }, Clock::Stepped);
        mount.mkdir("g").unwrap();
        let mut file = OpenOptions::new().read(true).write(true).open(mount.path("g/schemata")).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert!(text.contains("L3:"));
        fs::remove_dir(mount.path("g")).unwrap();
        mount.mkdir("g").unwrap();
        // The new group with the same name is another group.
        file.rewind().unwrap();
        assert_eq!(errno(&file.read_to_string(&mut text).unwrap_err()), expected);
        assert_eq!(errno(&file.write(b"L3:0=1\n").unwrap_err()), expected);
        assert_eq!(mount.read("g/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    }
}

#[test]
fn a_descriptor_that_is_read_again_is_never_stale() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    let mut file = File::open(mount.path("schemata")).unwrap();
    for mask in ["7ff", "3", "f0"] {
        mount.write("schemata", &format!("L3:0={mask};1={mask}\n")).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("    MB:0=100;1=100\n    L3:0={mask};1={mask}\n"));
    }
}

#[test]
fn real_tasks_take_their_children_along() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    mount.mkdir("g").unwrap();
    let mut shell = Shell::start();
    let own = shell.run("echo $$");
    assert!(mount.read("tasks").lines().any(|line| line == own));
    let early = shell.run("sleep 600 & echo $!");
    mount.write("g/tasks", &format!("{own}\n")).unwrap();
    let late = shell.run("sleep 600 & echo $!");
    let mut listed: Vec<_> = mount.read("g/tasks").lines().map(str::to_owned).collect();
    listed.sort();
    let mut expected = vec![own.clone(), late.clone()];
    expected.sort();
    assert_eq!(listed, expected, "{early} was there before");
    // 0 is the writer itself, as a thread.
    let zero = shell.run(&format!("sh -c 'echo 0 > {}; echo $$'", mount.path("tasks").display()));
    assert!(!mount.read("g/tasks").lines().any(|line| line == zero));
    fs::remove_dir(mount.path("g")).unwrap();
    assert!(mount.read("tasks").lines().any(|line| line == late));
    shell.run(&format!("kill {early} {late}; echo"));
}

#[test]
fn threads_are_moved_one_by_one() {
    let mount = Mount::of(Profile::intel(), Clock::Stepped);
    mount.mkdir("g").unwrap();
    let tasks = mount.path("g/tasks");
    let listed = std::thread::spawn(move || {
        OpenOptions::new().write(true).open(&tasks).unwrap().write_all(b"0\n").unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().to_string();
        (own, fs::read_to_string(&tasks).unwrap())
    });
    let (own, listed) = listed.join().unwrap();
    assert_eq!(listed, format!("{own}\n"));
    assert_eq!(mount.read("g/tasks"), "", "the thread has ended");
}

#[test]
fn counters_and_domains_change_under_the_reader() {
    let mount = Mount::of(Profile::amd(), Clock::Stepped);
    mount.mkdir("g").unwrap();
    let tree = mount.mounted.tree();
    {
        let mut tree = tree.lock().unwrap();
        let demand = Demand { occupancy: Bytes(4 << 20), bandwidth: BytesPerSecond(1 << 30), local_percent: 100 };
        tree.set_group_demand("g", 8, demand).unwrap();
        tree.advance(Duration::from_secs(1));
        tree.set_counter_fault("g", 0, Event::LlcOccupancy, Some(CounterFault::Unavailable)).unwrap();
    }
    assert_eq!(mount.read("g/mon_data/mon_L3_08/llc_occupancy"), format!("{}\n", 4 << 20));
    assert_eq!(mount.read("g/mon_data/mon_L3_08/mbm_total_bytes"), format!("{}\n", 1 << 30));
    assert_eq!(mount.read("g/mon_data/mon_L3_00/llc_occupancy"), "Unavailable\n");
    tree.lock().unwrap().offline_l3(8);
    assert_eq!(mount.read("g/schemata"), "    MB:0=2048\n    L3:0=ffff\n");
    let mut names: Vec<_> =
        fs::read_dir(mount.path("g/mon_data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["mon_L3_00"]);
}

#[test]
fn with_a_real_clock_bytes_run_on() {
    let mount = Mount::of(Profile::intel(), Clock::Real);
    let demand = Demand { bandwidth: BytesPerSecond(10_000_000_000), ..Demand::default() };
    mount.mounted.tree().lock().unwrap().set_group_demand("", 0, demand).unwrap();
    let bytes = || mount.read("mon_data/mon_L3_00/mbm_total_bytes").trim().parse::<u64>().unwrap();
    let first = bytes();
    let begun = std::time::Instant::now();
    while bytes() == first {
        assert!(begun.elapsed() < Duration::from_secs(120), "the counter stands still");
    }
}
