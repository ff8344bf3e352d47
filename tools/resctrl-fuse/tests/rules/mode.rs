//! `mode` and `size`.

use qosm_resctrl_fuse::{Errno, Profile};

use super::{read, refused, tree, with_groups, write};

#[test]
fn a_group_is_exclusive_only_while_no_other_has_its_ways() {
    let mut tree = with_groups(Profile::intel());
    // The root has every way.
    refused(&mut tree, "g/mode", "exclusive\n", Errno::INVAL, "Schemata overlaps");
    write(&mut tree, "schemata", "L3:0=7f0;1=7f0\n");
    write(&mut tree, "h/schemata", "L3:0=700;1=700\n");
    write(&mut tree, "g/schemata", "L3:0=f\n");
    // The ways of the other cache still overlap.
    refused(&mut tree, "g/mode", "exclusive\n", Errno::INVAL, "Schemata overlaps");
    assert_eq!(read(&mut tree, "g/mode"), "shareable\n");
    write(&mut tree, "g/schemata", "L3:1=f\n");
    for mode in ["exclusive\n", "exclusive\n", "shareable\n", "shareable\n", "exclusive\n"] {
        write(&mut tree, "g/mode", mode);
        assert_eq!(read(&mut tree, "g/mode"), mode);
    }
}

#[test]
fn ways_of_other_hardware_cannot_be_exclusive() {
    let mut tree = with_groups(Profile::haswell());
    write(&mut tree, "schemata", "L3:0=f;1=f\n");
    write(&mut tree, "h/schemata", "L3:0=f;1=f\n");
    write(&mut tree, "g/schemata", "L3:0=c0000;1=f0\n");
    refused(&mut tree, "g/mode", "exclusive\n", Errno::INVAL, "Schemata overlaps");
}

#[test]
fn without_ways_there_is_nothing_to_be_exclusive_of() {
    let mut tree = with_groups(Profile::mb_only());
    refused(&mut tree, "g/mode", "exclusive\n", Errno::INVAL, "Cannot be exclusive without CAT/CDP");
}

#[test]
fn other_modes_are_unknown() {
    let mut tree = with_groups(Profile::intel());
    for text in ["none\n", "Shareable\n", " shareable\n", "\n", "pseudo-locked\n"] {
        refused(&mut tree, "g/mode", text, Errno::INVAL, "Unknown or unsupported mode");
    }
    write(&mut tree, "g/mode", "shareable\n");
    refused(&mut tree, "g/mode", "exclusive", Errno::INVAL, "ok");
}

#[test]
fn sizes_are_bytes_of_cache_and_bandwidth_as_it_stands() {
    for (profile, written, size) in [
        (Profile::intel(), "L3:0=3;1=1\nMB:1=15\n", "    MB:0=100;1=20\n    L3:0=4194304;1=2097152\n"),
        (Profile::amd(), "L3:0=0;8=8001\nMB:0=16\n", "    MB:0=16;8=2048\n    L3:0=0;8=4194304\n"),
        (
            Profile::cdp(),
            "L3CODE:0=1\n",
            "    MB:0=100;1=100\nL3DATA:0=23068672;1=23068672\nL3CODE:0=2097152;1=23068672\n",
        ),
    ] {
        let mut tree = with_groups(profile);
        write(&mut tree, "g/schemata", written);
        assert_eq!(read(&mut tree, "g/size"), size);
    }
    assert_eq!(read(&mut tree(Profile::mb_only()), "size"), "MB:0=100;1=100\n");
}
