use super::super::fixture::Fixture;
use super::*;

const SYS: &str = "24 1 0:22 / /sys rw - sysfs sysfs rw\n";
const REAL: &str = "50 24 0:44 / /sys/fs/resctrl rw - resctrl resctrl rw,cdp,mba_MBps\n";
const SEEN_FROM_A_CONTAINER: &str = "60 24 0:44 / /host/sys/fs/resctrl rw - resctrl resctrl rw\n";
const EMULATION: &str = "70 24 0:60 / /tmp/r rw - fuse.resctrl qosm rw,user_id=0,group_id=0\n";

const XEON: &str =
    "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3 cdp_l3 mba cqm_llc mbahn\nprocessor\t: 1\n";
const VIRTUAL: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu\n";

fn find(mounts: &str, filesystems: &str, cpuinfo: &str, at: Option<&str>) -> Availability {
    let fixture = Fixture::new(&[
        ("self/mountinfo", &format!("{SYS}{mounts}")),
        ("filesystems", &format!("nodev\tsysfs\n\text4\n{filesystems}")),
        ("cpuinfo", cpuinfo),
        ("cmdline", "root=/dev/sda1 rdt=!mba,!l3cat quiet\n"),
    ]);
    detect(&fixture.root, at).unwrap()
}

const KNOWN: &str = "nodev\tresctrl\n";

#[test]
fn the_message_says_what_is_missing_and_what_to_do() {
    for (mounts, filesystems, cpuinfo, at, expected) in [
        ("", KNOWN, XEON, None, "not mounted: `mount -t resctrl resctrl /sys/fs/resctrl` makes it usable"),
        (REAL, KNOWN, XEON, None, "mounted at /sys/fs/resctrl, code and data apart in L3, bandwidth in MB/s"),
        (SEEN_FROM_A_CONTAINER, KNOWN, XEON, None, "mounted at /host/sys/fs/resctrl"),
        // ARM has no processor flags for it; the kernel's list of file systems decides.
        (
            "",
            KNOWN,
            "processor\t: 0\n",
            None,
            "not mounted: `mount -t resctrl resctrl /sys/fs/resctrl` makes it usable",
        ),
        (
            "",
            "",
            XEON,
            None,
            "not in this kernel, though the processor has cat_l3, cdp_l3, mba, cqm_llc: take `rdt=!mba,!l3cat` off the kernel's \
             command line",
        ),
        (
            "",
            "",
            VIRTUAL,
            None,
            "not on this machine: the processor (AMD) shows neither cat_l3, cat_l2, mba nor cqm; virtual machines seldom do, so use \
             bare metal",
        ),
        (EMULATION, "", VIRTUAL, Some("/tmp/r"), "mounted at /tmp/r, emulated, without effect on the processor"),
        (
            EMULATION,
            "",
            VIRTUAL,
            Some("/tmp/s"),
            "not at /tmp/s, where nothing is mounted: mount it there, or name the place where it is",
        ),
        (
            "",
            "",
            VIRTUAL,
            Some("/sys"),
            "not at /sys, where a file system of type sysfs is mounted: name the place where it is",
        ),
        (REAL, KNOWN, XEON, Some("/r"), "not mounted: `mount -t resctrl resctrl /r` makes it usable"),
    ] {
        assert_eq!(find(mounts, filesystems, cpuinfo, at).to_string(), expected);
    }
}

#[test]
fn an_emulation_is_taken_only_where_it_is_named() {
    assert!(matches!(find(EMULATION, "", VIRTUAL, None), Availability::NoHardware { vendor: Vendor::Amd }));
    let both = format!("{EMULATION}{REAL}");
    for (at, expected) in [(None, USUAL_PATH), (Some("/tmp/r"), "/tmp/r")] {
        let found = find(&both, KNOWN, XEON, at);
        assert!(matches!(&found, Availability::Mounted { path, .. } if path == expected), "{found:?}");
    }
}

#[test]
fn the_usual_place_comes_before_others_and_the_upper_mount_hides_the_lower() {
    let found = find(&format!("{SEEN_FROM_A_CONTAINER}{REAL}"), KNOWN, XEON, None);
    assert!(matches!(&found, Availability::Mounted { path, .. } if path == USUAL_PATH), "{found:?}");
    let hidden = format!("{REAL}80 24 0:70 / /sys/fs/resctrl rw - tmpfs tmpfs rw\n");
    let found = find(&hidden, KNOWN, XEON, None);
    assert!(matches!(found, Availability::NotMounted { .. }), "{found:?}");
}

#[test]
fn reads_the_maker_and_the_flags() {
    for (text, vendor, flags) in [
        (XEON, Vendor::Intel, vec!["cat_l3", "cdp_l3", "mba", "cqm_llc"]),
        (VIRTUAL, Vendor::Amd, vec![]),
        ("vendor_id\t: HygonGenuine\nflags\t: smba\n", Vendor::Amd, vec!["smba"]),
        ("CPU implementer\t: 0x41\n", Vendor::Other, vec![]),
        ("", Vendor::Other, vec![]),
    ] {
        assert_eq!(Processor::parse(text), Processor { vendor, flags });
    }
}

#[test]
fn a_refused_mount_is_told_with_the_way_out() {
    for (errno, name, part) in [
        (Errno::BUSY, "EBUSY", "mountPropagation HostToContainer"),
        (Errno::NODEV, "ENODEV", "rdt="),
        (Errno::PERM, "EPERM", "CAP_SYS_ADMIN"),
        (Errno::ACCESS, "EACCES", "CAP_SYS_ADMIN"),
        (Errno::NOENT, "ENOENT", "qosm doctor"),
        (Errno::NOMEM, "ENOMEM", "the kernel's log"),
    ] {
        let error = not_mounted(USUAL_PATH, errno.into());
        assert_eq!(error.errno_name(), name);
        let option = error.to_string();
        assert!(option.starts_with(&format!("cannot mount resctrl at /sys/fs/resctrl ({name}): ")), "{option}");
        assert!(option.contains(part), "{option}");
    }
}

#[test]
fn a_machine_without_the_directory_says_so() {
    let fixture = Fixture::new(&[("kernel/x", "")]);
    let error = mount(&fixture.root).unwrap_err();
    assert_eq!(error.errno_name(), "ENOENT");
}
