//! resctrl, on an emulation that refuses what the kernel refuses. Needs root and `/dev/fuse`.
//!
//! `QOSM_RESCTRL=/sys/fs/resctrl cargo test -p qosm-host --test fuse -- --test-threads=1` runs the tests that need no
//! certain machine and no fault on the real resctrl that is mounted there; the other tests report that they did not
//! run. It removes every group that begins with `qosm-`, so do not run it beside an agent.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cgroup;
mod classes;
mod counters;
mod threads;

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::resctrl::{
    Absent, Availability, BandwidthResource, CacheId, CacheLevel, CacheResource, Created, Group, GroupName, Groups,
    Mask, Percent, PercentRange, Processor, Removed, ResctrlError, Schemata, Shareable, Vendor, detect, mount,
};
use qosm_resctrl_fuse::tasks::{Scripted, Tasks};
use qosm_resctrl_fuse::{CpuMask, KernelVersion, Mounted, Profile, Tree, Writer};

use cgroup::{Cgroup, Threads};

/// An emulated machine, or this one, and the groups of a host on it.
struct Machine {
    // First, so that it is dropped first: it holds a directory of the mount open.
    groups: Groups,
    mounted: Option<Mounted>,
    path: String,
    _point: Option<tempfile::TempDir>,
}

/// Reports that a test cannot run on this machine.
fn not_run(why: &str) {
    let test = std::thread::current();
    // Not `println`, which is hidden for a test that passes.
    let _ = writeln!(std::io::stdout(), "not run: {}, {why}", test.name().unwrap_or_default());
}

/// Path of the real resctrl, if one is configured.
fn real() -> Option<String> {
    std::env::var("QOSM_RESCTRL").ok().filter(|path| !path.is_empty())
}

impl Machine {
    /// An emulated machine; `None` without FUSE, or if a real resctrl is configured.
    fn new(profile: Profile, tasks: impl Tasks + 'static) -> Option<Self> {
        if real().is_some() {
            not_run("for it takes the emulation");
            return None;
        }
        if !std::path::Path::new("/dev/fuse").exists() {
            not_run("for there is no /dev/fuse");
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let mounted = mount_emulated(profile, tasks, point.path());
        let path = mounted.path().to_str().unwrap().to_owned();
        Some(Self { groups: open(&path), mounted: Some(mounted), path, _point: Some(point) })
    }

    /// An emulated machine with the tasks 10 and 11.
    fn of(profile: Profile) -> Option<Self> {
        Self::new(profile, Scripted::new([10, 11]))
    }

    /// The real resctrl if one is configured, otherwise an emulation that knows the threads of these cgroups.
    fn any(cgroups: &[Cgroup]) -> Option<Self> {
        match real() {
            Some(path) => Some(Self { groups: open(&path), mounted: None, path, _point: None }),
            None => Self::new(Profile::intel(), Threads::of(cgroups)),
        }
    }

    /// Changes the tree as another program. Do not access the mount meanwhile.
    fn others<T>(&self, act: impl FnOnce(&mut Tree) -> T) -> T {
        act(&mut self.mounted.as_ref().unwrap().tree().lock().unwrap())
    }

    /// The content of a file, read by path.
    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(format!("{}/{path}", self.path)).unwrap()
    }

    /// The visible state of all groups: names, schemata, tasks.
    fn seen(&self) -> Vec<String> {
        let present = self.groups.present().unwrap();
        let own = present.own.iter().map(Group::to_string);
        let mut seen: Vec<_> = own.chain(present.foreign).map(|group| self.seen_of(&group)).collect();
        seen.push(self.seen_of(""));
        seen
    }

    fn seen_of(&self, group: &str) -> String {
        let file = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
        let schemata = std::fs::read_to_string(format!("{}/{}", self.path, file("schemata"))).unwrap_or_default();
        format!("{group}: {schemata} {}", self.text(&file("tasks")))
    }
}

fn mount_emulated(profile: Profile, tasks: impl Tasks + 'static, point: &std::path::Path) -> Mounted {
    let tree = Arc::new(Mutex::new(Tree::new(profile, tasks).unwrap()));
    qosm_resctrl_fuse::mount(tree, point, qosm_resctrl_fuse::Clock::Stepped).unwrap()
}

/// Opens resctrl by the path of its mount, like an agent at its start.
fn open(path: &str) -> Groups {
    let proc = Dir::open_ambient_dir("/proc", ambient_authority()).unwrap();
    let Availability::Mounted { path, options, is_emulated } = detect(&proc, Some(path)).unwrap() else {
        unreachable!("the mount is not seen at {path}")
    };
    let root = Dir::open_ambient_dir(&path, ambient_authority()).unwrap();
    let is_amd = root.read_to_string("info/MB/delay_linear").is_ok_and(|text| text == "0\n");
    let vendor = match (is_emulated, is_amd) {
        (false, _) => Processor::read(&proc).unwrap().vendor,
        (true, true) => Vendor::Amd,
        (true, false) => Vendor::Intel,
    };
    Groups::open(root, &path, vendor, options).unwrap()
}

fn name(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn control(of: &str) -> Group {
    Group::Control(name(of))
}

fn monitor(parent: Option<&str>, of: &str) -> Group {
    Group::Monitor { parent: parent.map(name), name: name(of) }
}

#[test]
fn an_emulation_is_found_only_where_it_is_named() {
    let Some(_machine) = Machine::of(Profile::intel()) else { return };
    let proc = Dir::open_ambient_dir("/proc", ambient_authority()).unwrap();
    let found = detect(&proc, None).unwrap();
    assert!(!matches!(&found, Availability::Mounted { is_emulated: true, .. }), "{found}");
}

#[test]
fn mounting_on_a_machine_without_resctrl_is_an_error() {
    let proc = Dir::open_ambient_dir("/proc", ambient_authority()).unwrap();
    if !matches!(detect(&proc, None).unwrap(), Availability::NoHardware { .. } | Availability::NoKernelSupport { .. }) {
        not_run("for this machine has resctrl");
        return;
    }
    let sys = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(sys.path().join("fs/resctrl")).unwrap();
    let error = mount(&Dir::open_ambient_dir(sys.path(), ambient_authority()).unwrap()).unwrap_err();
    assert_eq!(error.errno_name(), "ENODEV", "{error}");
}

#[test]
fn every_machine_takes_what_is_made_of_percent_and_nothing_remains() {
    for profile in Profile::NAMES.iter().filter(|name| !["none", "monitor-only"].contains(name)) {
        // Values are padded before Linux 6.15.
        for kernel in [KernelVersion(6, 1), KernelVersion(6, 18)] {
            let Some(machine) = Machine::of(Profile::named(profile).unwrap().with_kernel(kernel)) else { return };
            let (groups, before) = (&machine.groups, machine.seen());
            assert_eq!(groups.create(&control("be")).unwrap(), Created::New, "{profile}");
            for (start, end, share) in [(0, 30, 35), (0, 1, 1), (99, 100, 100), (10, 11, 50), (0, 100, 99)] {
                let range = PercentRange::new(start, end).unwrap();
                for use_of in [Shareable::Use, Shareable::Avoid] {
                    let (info, share) = (groups.info(), Percent::new(share).unwrap());
                    let mut wanted = info.ways(CacheLevel::L3, None, range, use_of);
                    wanted.merge(&info.ways(CacheLevel::L2, None, range, use_of));
                    wanted.merge(&info.share(BandwidthResource::Memory, None, share, None).unwrap());
                    let reported = format!("{profile} {start}..{end} {use_of:?}: {wanted}");
                    assert!(!wanted.is_empty(), "{reported}");
                    let written = groups.apply(&name("be"), &wanted).unwrap();
                    assert!(written.absent.is_empty() && written.differing.is_empty(), "{reported}: {written:?}");
                    let there = groups.schemata(Some(&name("be"))).unwrap();
                    assert!(wanted.difference(&there).changed.is_empty(), "{reported}: {there}");
                    let again = groups.apply(&name("be"), &wanted).unwrap();
                    assert!(again.changed.is_empty(), "{reported}: {again:?}");
                }
            }
            assert_eq!(groups.create(&control("be")).unwrap(), Created::Existing);
            assert_eq!(groups.remove(&control("be")).unwrap(), Removed::Removed);
            assert_eq!(groups.remove(&control("be")).unwrap(), Removed::Absent);
            assert_eq!(machine.seen(), before, "{profile}");
        }
    }
}

#[test]
fn a_machine_that_only_measures_has_monitor_groups_alone() {
    let Some(machine) = Machine::of(Profile::monitor_only()) else { return };
    assert_eq!(machine.groups.info().closids(), None);
    assert!(matches!(machine.groups.create(&control("be")), Err(ResctrlError::Make { errno: "EPERM", .. })));
    assert_eq!(machine.groups.create(&monitor(None, "x")).unwrap(), Created::New);
    assert_eq!(machine.groups.remove(&monitor(None, "x")).unwrap(), Removed::Removed);
}

#[test]
fn running_out_of_closids_names_their_holders() {
    let Some(machine) = Machine::of(Profile::few_closids()) else { return };
    machine.others(|tree| tree.mkdir("lab", Writer::ROOT)).unwrap();
    for group in ["be", "ls"] {
        machine.groups.create(&control(group)).unwrap();
    }
    let error = machine.groups.create(&control("lsr")).unwrap_err();
    let ResctrlError::Closids { limit, holders, .. } = &error else { panic!("{error}") };
    assert_eq!((*limit, holders.join(" ").as_str()), (4, "lab qosm-be qosm-ls"));
    assert!(error.is_exhausted() && error.errno_name() == "ENOSPC", "{error}");
    // A removed group frees its CLOSID.
    machine.groups.remove(&control("be")).unwrap();
    assert_eq!(machine.groups.create(&control("lsr")).unwrap(), Created::New);
}

#[test]
fn running_out_of_rmids_says_whether_waiting_helps() {
    let mut profile = Profile::intel();
    profile.monitoring.as_mut().unwrap().num_rmids = 3;
    let Some(machine) = Machine::of(profile) else { return };
    for group in [control("be"), monitor(Some("be"), "x")] {
        machine.groups.create(&group).unwrap();
    }
    for group in [monitor(None, "y"), control("ls")] {
        let error = machine.groups.create(&group).unwrap_err();
        assert!(matches!(error, ResctrlError::Rmids { limit: 3, in_limbo: false, .. }), "{error}");
    }
    // A group whose lines are still in the cache keeps its RMID busy.
    machine.others(|tree| {
        let occupancy = qosm_resctrl_fuse::Bytes(8 << 20);
        let demand = qosm_resctrl_fuse::Demand { occupancy, ..Default::default() };
        tree.set_group_demand("qosm-be/mon_groups/qosm-x", 0, demand).unwrap();
        tree.advance(std::time::Duration::from_secs(5));
    });
    machine.groups.remove(&monitor(Some("be"), "x")).unwrap();
    let error = machine.groups.create(&control("ls")).unwrap_err();
    assert!(matches!(error, ResctrlError::Rmids { in_limbo: true, .. }), "{error}");
    machine.others(|tree| tree.advance(std::time::Duration::from_secs(60)));
    assert_eq!(machine.groups.create(&control("ls")).unwrap(), Created::New);
}

#[test]
fn a_cache_without_a_free_way_is_named() {
    let Some(machine) = Machine::of(Profile::l3_only()) else { return };
    machine.others(|tree| {
        tree.mkdir("lab", Writer::ROOT).unwrap();
        for (path, text) in [("schemata", "L3:0=7;1=7\n"), ("lab/schemata", "L3:0=7f8;1=7f8\n")] {
            tree.write(path, text.as_bytes(), Writer::ROOT).unwrap();
        }
        for path in ["mode", "lab/mode"] {
            tree.write(path, b"exclusive\n", Writer::ROOT).unwrap();
        }
    });
    let error = machine.groups.create(&control("be")).unwrap_err();
    assert!(matches!(&error, ResctrlError::Ways { .. }), "{error}");
    assert!(error.to_string().contains(": No space on L3:"), "{error}");
}

#[test]
fn a_refused_value_leaves_the_group_as_it_was_and_the_kernel_has_its_say() {
    let Some(machine) = Machine::of(Profile::intel()) else { return };
    machine.others(|tree| {
        tree.mkdir("lab", Writer::ROOT).unwrap();
        tree.write("schemata", b"L3:0=7f;1=7f\n", Writer::ROOT).unwrap();
        tree.write("lab/schemata", b"L3:0=780;1=780\n", Writer::ROOT).unwrap();
        tree.write("lab/mode", b"exclusive\n", Writer::ROOT).unwrap();
    });
    machine.groups.create(&control("be")).unwrap();
    let before = machine.seen();
    let half = Percent::new(50).unwrap();
    for (mask, reported) in [
        (0b101, "The mask 5 has non-consecutive 1-bits"),
        (0, "Mask out of range"),
        (0xfff, "Mask out of range"),
        (0xc0, "Overlaps with exclusive group"),
    ] {
        let mut wanted = machine.groups.info().share(BandwidthResource::Memory, None, half, None).unwrap();
        wanted.set_mask(CacheResource::L3, CacheId(1), Mask::from_bits(mask));
        let error = machine.groups.apply(&name("be"), &wanted).unwrap_err();
        let ResctrlError::Refused { path, errno, status, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with("/qosm-be/schemata"), "{path}");
        assert_eq!(*errno, "EINVAL");
        assert!(status.text().is_some_and(|text| text.starts_with(reported)), "{error}");
        assert_eq!(machine.seen(), before, "{mask:x}");
    }
    let error = machine.groups.apply(&name("ls"), &"L3:0=1".parse().unwrap()).unwrap_err();
    assert!(error.is_gone(), "{error}");
}

#[test]
fn what_an_earlier_agent_left_is_adopted_or_removed() {
    let Some(machine) = Machine::of(Profile::intel()) else { return };
    let all = [control("be"), control("ls"), monitor(None, "r"), monitor(Some("be"), "x"), monitor(Some("ls"), "y")];
    for group in &all {
        machine.groups.create(group).unwrap();
    }
    machine.groups.apply(&name("be"), &"L3:0=3;1=3\nMB:0=20".parse().unwrap()).unwrap();
    machine.others(|tree| {
        tree.write("qosm-be/tasks", b"10\n", Writer::ROOT).unwrap();
        tree.write("qosm-ls/tasks", b"11\n", Writer::ROOT).unwrap();
    });
    let kept = machine.seen_of("qosm-be");

    // The next agent only knows the mount.
    let next = open(&machine.path);
    assert_eq!(next.present().unwrap().own.len(), all.len());
    let adopted = next.adopt(&[control("be"), monitor(Some("be"), "x"), control("lsr")]).unwrap();
    assert_eq!(adopted.kept, [control("be"), monitor(Some("be"), "x")]);
    assert_eq!(adopted.removed, [control("ls"), monitor(None, "r")]);
    assert!(adopted.failed.is_empty(), "{adopted:?}");
    assert_eq!(machine.seen_of("qosm-be"), kept);
    assert_eq!(machine.text("tasks"), "11\n");
}

#[test]
fn groups_of_others_and_the_roots_schemata_stay() {
    let Some(machine) = Machine::of(Profile::intel()) else { return };
    machine.others(|tree| {
        for path in ["BE", "qosm", "BE/mon_groups/qosm-like", "mon_groups/lab"] {
            tree.mkdir(path, Writer::ROOT).unwrap();
        }
        tree.write("schemata", b"L3:0=7fe;1=7fe\nMB:0=90;1=100\n", Writer::ROOT).unwrap();
        tree.write("BE/schemata", b"L3:0=1;1=1\nMB:0=10\n", Writer::ROOT).unwrap();
        tree.write("BE/tasks", b"10\n", Writer::ROOT).unwrap();
    });
    let before = machine.seen();
    for group in [control("be"), monitor(None, "x"), monitor(Some("be"), "x")] {
        machine.groups.create(&group).unwrap();
    }
    machine.groups.apply(&name("be"), &"L3:0=1;1=1\nMB:0=10;1=10".parse().unwrap()).unwrap();
    machine.others(|tree| tree.write("qosm-be/tasks", b"11\n", Writer::ROOT)).unwrap();
    // Everything that a restore does.
    let adopted = machine.groups.adopt(&[]).unwrap();
    assert!(adopted.failed.is_empty() && adopted.kept.is_empty(), "{adopted:?}");
    assert_eq!(machine.seen(), before);
    for path in ["BE/mon_groups/qosm-like/tasks", "mon_groups/lab/tasks"] {
        assert!(machine.others(|tree| tree.read(path)).is_ok(), "{path}");
    }
}

#[test]
fn a_removed_cache_is_reported_and_the_others_are_written() {
    let Some(mut machine) = Machine::of(Profile::amd()) else { return };
    machine.groups.create(&control("be")).unwrap();
    let wanted: Schemata = "L3:0=f;8=f\nMB:0=100;8=100".parse().unwrap();
    let cpus: CpuMask = machine.others(|tree| tree.profile().l3_domains[1].cpus.clone());
    machine.others(|tree| tree.offline(&cpus));
    let written = machine.groups.apply(&name("be"), &wanted).unwrap();
    assert_eq!(written.changed.to_string(), "L3:0=f\nMB:0=100\n");
    let gone = [Absent::Mask(CacheResource::L3, CacheId(8)), Absent::Bandwidth(BandwidthResource::Memory, CacheId(8))];
    assert_eq!(written.absent, gone);
    machine.groups.read_info_again().unwrap();
    assert_eq!(machine.groups.info().caches[&CacheResource::L3].ids, [CacheId(0)]);

    // The domain comes back with default values, and the next write restores the wanted ones.
    machine.others(|tree| tree.online(&cpus));
    let written = machine.groups.apply(&name("be"), &wanted).unwrap();
    assert_eq!(written.changed.to_string(), "L3:8=f\nMB:8=100\n");
}
