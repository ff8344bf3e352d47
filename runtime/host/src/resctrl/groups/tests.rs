use super::super::fixture::{self, Fixture};
use super::*;

fn name(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn control(of: &str) -> Group {
    Group::Control(name(of))
}

fn populated() -> Fixture {
    let fixture = fixture::intel();
    for path in ["qosm-be", "qosm-ls", "mon-lab", "BE"] {
        fixture.add(&[(&format!("{path}/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n")]);
        fixture.add(&[(&format!("{path}/tasks"), "")]);
    }
    for path in ["mon_groups/qosm-r", "mon_groups/other", "qosm-be/mon_groups/qosm-x", "BE/mon_groups/qosm-y"] {
        fixture.add(&[(&format!("{path}/tasks"), "")]);
    }
    fixture.add(&[("mon_data/mon_L3_00/llc_occupancy", "0\n")]);
    fixture
}

#[test]
fn distinguishes_own_groups_from_others() {
    let present = populated().groups(Vendor::Intel).present().unwrap();
    let names: Vec<_> = present.own.iter().map(Group::to_string).collect();
    assert_eq!(names, ["qosm-be", "qosm-ls", "mon_groups/qosm-r", "qosm-be/mon_groups/qosm-x"]);
    assert_eq!(present.foreign, ["BE", "mon-lab"]);
}

#[test]
fn a_group_that_is_there_is_left_as_it_is() {
    let fixture = populated();
    let groups = fixture.groups(Vendor::Intel);
    assert_eq!(groups.create(&control("be")).unwrap(), Created::Existing);
    assert_eq!(groups.create(&control("new")).unwrap(), Created::New);
    let monitor = Group::Monitor { parent: Some(name("nobody")), name: name("x") };
    let error = groups.create(&monitor).unwrap_err();
    assert_eq!(error.to_string(), "resctrl group /r/qosm-nobody is gone");
}

#[test]
fn removing_what_is_not_there_is_no_error() {
    assert_eq!(populated().groups(Vendor::Intel).remove(&control("nobody")).unwrap(), Removed::Absent);
}

#[test]
fn writes_only_what_is_different() {
    let fixture = populated();
    let groups = fixture.groups(Vendor::Intel);
    let wanted: Schemata = "L3:0=7ff;1=7ff\nMB:0=100;1=95\n".parse().unwrap();
    // The kernel rounds 95 up to 100, so nothing differs.
    let written = groups.apply(&name("be"), &wanted).unwrap();
    assert_eq!(written, Written { now: written.now.clone(), ..Written::default() });

    // Same length as the new text, since a plain file keeps the rest.
    fixture.add(&[("qosm-be/schemata", "L3:1=8\nMB:0=90\n")]);
    let wanted: Schemata = "L3:1=f;7=f\nMB:0=35\n".parse().unwrap();
    let written = groups.apply(&name("be"), &wanted).unwrap();
    assert_eq!(written.changed.to_string(), "L3:1=f\nMB:0=40\n");
    assert_eq!(written.absent.iter().map(Absent::to_string).collect::<Vec<_>>(), ["L3:7"]);
    assert!(written.differing.is_empty());
    assert_eq!(fixture.text("qosm-be/schemata"), "L3:1=f\nMB:0=40\n");
    assert_eq!(fixture.text("schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
}

#[test]
fn a_refusal_comes_with_what_the_kernel_says() {
    let fixture = populated();
    let groups = fixture.groups(Vendor::Intel);
    let refused = |errno: Errno| groups.refused("qosm-be/schemata", "L3:0=5\nMB:0=10\n", errno.into()).to_string();
    assert_eq!(refused(Errno::INVAL), "the kernel refused `L3:0=5; MB:0=10` in /r/qosm-be/schemata (EINVAL)");
    fixture.add(&[("info/last_cmd_status", "The mask 5 has non-consecutive 1-bits\n")]);
    assert_eq!(
        refused(Errno::INVAL),
        "the kernel refused `L3:0=5; MB:0=10` in /r/qosm-be/schemata (EINVAL): The mask 5 has non-consecutive 1-bits"
    );
    assert_eq!(refused(Errno::NOENT), "resctrl group /r/qosm-be is gone");
    assert!(refused(Errno::ROFS).starts_with("/r/qosm-be/schemata is on a read-only mount: "));
}

#[test]
fn too_many_groups_name_the_exhausted_resource() {
    use ResctrlError::{Closids, Gone, Make, ReadOnly, Rmids, Ways};
    let fixture = populated();
    let groups = fixture.groups(Vendor::Intel);
    let cannot = |errno: Errno, status: &str| {
        fixture.add(&[("info/last_cmd_status", status)]);
        groups.cannot_make(&control("new"), errno.into())
    };
    let error = cannot(Errno::NOSPC, "Out of CLOSIDs\n");
    assert!(matches!(&error, Closids { limit: 8, holders, .. } if holders == &["BE", "mon-lab", "qosm-be", "qosm-ls"]));
    assert!(matches!(cannot(Errno::NOSPC, "Out of RMIDs\n"), Rmids { limit: 176, in_limbo: false, .. }));
    assert!(matches!(cannot(Errno::BUSY, "Out of RMIDs\n"), Rmids { in_limbo: true, .. }));
    let error = cannot(Errno::NOSPC, "No space on L3:0\n");
    assert!(matches!(&error, Ways { .. }) && error.to_string().contains("qosm-new: No space on L3:0"), "{error}");
    assert!(matches!(cannot(Errno::NOENT, "ok\n"), Gone { .. }));
    assert!(matches!(cannot(Errno::ROFS, "ok\n"), ReadOnly { .. }));
    assert!(matches!(cannot(Errno::PERM, "ok\n"), Make { errno: "EPERM", .. }));

    // Kernels without a text: either the maximum number of groups exists, or not.
    assert!(matches!(cannot(Errno::NOSPC, "ok\n"), Rmids { .. }));
    fixture.add(&[("info/MB/num_closids", "5\n")]);
    let groups = fixture.groups(Vendor::Intel);
    assert!(matches!(groups.cannot_make(&control("new"), Errno::NOSPC.into()), Closids { limit: 5, .. }));
}

#[test]
fn a_failed_removal_names_its_group() {
    // Plain directories with files cannot be removed, like a group with a fault.
    let fixture = populated();
    let adopted = fixture.groups(Vendor::Intel).adopt(&[control("ls")]).unwrap();
    assert_eq!(adopted.kept, [control("ls")]);
    let failed: Vec<_> = adopted.failed.iter().map(|(group, error)| (group.to_string(), error.errno_name())).collect();
    let expected = ["qosm-be", "mon_groups/qosm-r", "qosm-be/mon_groups/qosm-x"];
    assert_eq!(failed, expected.map(|group| (group.to_owned(), "ENOTEMPTY")));
    assert!(fixture.root.exists("BE/mon_groups/qosm-y") && fixture.root.exists("mon-lab"));
}

#[test]
fn caches_that_come_later_are_seen_when_they_are_read_again() {
    let fixture = fixture::intel();
    let mut groups = fixture.groups(Vendor::Intel);
    fixture.add(&[("schemata", "MB:0=100\nL3:0=7ff;4=7ff\n")]);
    groups.read_info_again().unwrap();
    let ids = |resource| groups.info().caches[&resource].ids.iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(ids(super::super::CacheResource::L3), [0, 4]);
}
