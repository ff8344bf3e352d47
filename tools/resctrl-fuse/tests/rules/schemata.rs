//! `schemata`: its format, cache masks, memory bandwidth.

use proptest::prelude::*;
use qosm_resctrl_fuse::{Errno, KernelVersion, MountOptions, Profile, Writer};

use super::{read, refused, tree, with_groups, write};

#[test]
fn lines_are_aligned_and_the_resource_registered_last_comes_first() {
    for (profile, text) in [
        (Profile::intel(), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
        (Profile::intel_20_ways(), "    MB:0=100;1=100;2=100;3=100\n    L3:0=fffff;1=fffff;2=fffff;3=fffff\n"),
        (Profile::haswell(), "L3:0=fffff;1=fffff\n"),
        (Profile::amd(), "    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n"),
        (Profile::cdp(), "    MB:0=100;1=100\nL3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=7ff\n"),
        (Profile::mb_only(), "MB:0=100;1=100\n"),
        (
            Profile { smba: Profile::amd().mb, ..Profile::amd() },
            "  SMBA:0=2048;8=2048\n    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n",
        ),
    ] {
        assert_eq!(read(&mut tree(profile), "schemata"), text);
    }
}

#[test]
fn values_were_padded_before_6_15() {
    let (old, new) = (KernelVersion(6, 14), KernelVersion(6, 15));
    for (profile, written, text) in [
        (Profile::amd().with_kernel(old), "MB:8=16\nL3:0=f\n", "    MB:0=2048;8=  16\n    L3:0=000f;8=ffff\n"),
        (Profile::amd().with_kernel(new), "MB:8=16\nL3:0=f\n", "    MB:0=2048;8=16\n    L3:0=f;8=ffff\n"),
        (Profile::intel().with_kernel(old), "MB:0=20\nL3:0=3\n", "    MB:0= 20;1=100\n    L3:0=003;1=7ff\n"),
    ] {
        let mut tree = with_groups(profile);
        write(&mut tree, "g/schemata", written);
        assert_eq!(read(&mut tree, "g/schemata"), text);
    }
}

#[test]
fn what_is_not_named_keeps_its_value_and_blanks_are_stripped() {
    let mut tree = with_groups(Profile::intel());
    for (written, text) in [
        ("L3:0=3\n", "    MB:0=100;1=100\n    L3:0=3;1=7ff\n"),
        ("MB:1=50\n", "    MB:0=100;1=50\n    L3:0=3;1=7ff\n"),
        (" L3 :1= 0x7 ;0=f;\n", "    MB:0=100;1=50\n    L3:0=f;1=7\n"),
        ("MB:0=30;1=40\nL3:0=1;1=1\n", "    MB:0=30;1=40\n    L3:0=1;1=1\n"),
    ] {
        write(&mut tree, "g/schemata", written);
        assert_eq!(read(&mut tree, "g/schemata"), text);
    }
    assert_eq!(read(&mut tree, "schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
}

#[test]
fn a_write_without_its_newline_or_of_more_than_a_page_leaves_the_status_alone() {
    let mut tree = with_groups(Profile::intel());
    let before = "Unknown or unsupported mode";
    refused(&mut tree, "g/mode", "none\n", Errno::INVAL, before);
    refused(&mut tree, "g/schemata", "", Errno::INVAL, before);
    refused(&mut tree, "g/schemata", "L3:0=3", Errno::INVAL, before);
    refused(&mut tree, "g/schemata", &format!("{:4096}\n", "L3:0=3"), Errno::TOOBIG, before);
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    write(&mut tree, "g/schemata", &format!("{:4095}\n", "L3:0=3"));
}

#[test]
fn a_bad_line_is_refused_and_changes_nothing() {
    let mut tree = with_groups(Profile::intel());
    let before = read(&mut tree, "g/schemata");
    for (text, status) in [
        ("\n", "Missing ':'"),
        ("L3 0=1\n", "Missing ':'"),
        ("L3:0=1\n\nMB:0=50\n", "Missing ':'"),
        ("L3:\n", "Missing 'L3' value"),
        ("L9:0=1\n", "Unknown or unsupported resource name 'L9'"),
        ("l3:0=1\n", "Unknown or unsupported resource name 'l3'"),
        ("L3CODE:0=1\n", "Unknown or unsupported resource name 'L3CODE'"),
        ("SMBA:0=1\n", "Unknown or unsupported resource name 'SMBA'"),
        ("L3:0\n", "Missing '=' or non-numeric domain"),
        ("L3:x=1\n", "Missing '=' or non-numeric domain"),
        ("L3:=1\n", "Missing '=' or non-numeric domain"),
        ("L3: 0=1\n", "Missing '=' or non-numeric domain"),
        ("L3:0=1; 1=1\n", "Missing '=' or non-numeric domain"),
        // An id that does not exist fails without a text.
        ("L3:7=1\n", "ok"),
        ("L3:0=1;0=3\n", "Duplicate domain 0"),
        ("L3:0=1\nL3:0=3\n", "Duplicate domain 0"),
        ("L3:0=1;1=800\n", "Mask out of range"),
        ("MB:0=50\nL3:0=5\n", "The mask 5 has non-consecutive 1-bits"),
        ("L3:0=1\nMB:0=5\n", "MB value 5 out of range [10,100]"),
    ] {
        refused(&mut tree, "g/schemata", text, Errno::INVAL, status);
        assert_eq!(read(&mut tree, "g/schemata"), before, "{text:?}");
    }
}

#[test]
fn with_code_and_data_apart_there_is_no_line_for_both() {
    let mut tree = with_groups(Profile::cdp());
    refused(&mut tree, "g/schemata", "L3:0=1\n", Errno::INVAL, "Unknown or unsupported resource name 'L3'");
    write(&mut tree, "g/schemata", "L3CODE:0=1\nL3DATA:0=6\n");
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\nL3DATA:0=6;1=7ff\nL3CODE:0=1;1=7ff\n");
}

#[test]
fn a_mask_is_checked_in_the_order_of_the_kernel() {
    let sparse_of_two = || {
        let mut profile = Profile::haswell();
        profile.l3.as_mut().unwrap().sparse = true;
        profile
    };
    for (profile, mask, status) in [
        (Profile::intel(), "xyz", "Non-hex character in the mask xyz"),
        (Profile::intel(), "", "Non-hex character in the mask "),
        (Profile::intel(), "-1", "Non-hex character in the mask -1"),
        (Profile::intel(), "3 3", "Non-hex character in the mask 3 3"),
        (Profile::intel(), "10000000000000000", "Non-hex character in the mask 10000000000000000"),
        (Profile::intel(), "0", "Mask out of range"),
        (Profile::intel(), "800", "Mask out of range"),
        (Profile::intel(), "100000001", "Mask out of range"),
        (Profile::intel(), "5", "The mask 5 has non-consecutive 1-bits"),
        (Profile::intel(), "401", "The mask 401 has non-consecutive 1-bits"),
        (Profile::haswell(), "10", "Need at least 2 bits in the mask"),
        (Profile::haswell(), "101", "The mask 101 has non-consecutive 1-bits"),
        (sparse_of_two(), "31", "Need at least 2 bits in the mask"),
        (Profile::amd(), "10000", "Mask out of range"),
    ] {
        let mut tree = with_groups(profile);
        let before = read(&mut tree, "g/schemata");
        refused(&mut tree, "g/schemata", &format!("L3:0={mask}\n"), Errno::INVAL, status);
        assert_eq!(read(&mut tree, "g/schemata"), before);
    }
    for (profile, mask) in [
        (Profile::intel(), "1"),
        (Profile::intel(), "7fe"),
        (Profile::intel(), "0X7"),
        (Profile::haswell(), "c0000"),
        (sparse_of_two(), "83"),
        (Profile::amd(), "0"),
        (Profile::amd(), "a5a5"),
    ] {
        write(&mut with_groups(profile), "g/schemata", &format!("L3:0={mask}\n"));
    }
}

#[test]
fn an_exclusive_way_belongs_to_no_other_group() {
    let mut tree = with_groups(Profile::intel());
    for group in ["", "h/"] {
        write(&mut tree, &format!("{group}schemata"), "L3:0=7f0;1=7f0\n");
    }
    write(&mut tree, "g/schemata", "L3:0=f;1=f\n");
    write(&mut tree, "g/mode", "exclusive\n");
    for (path, text, status) in [
        ("h/schemata", "L3:0=8\n", "Overlaps with exclusive group"),
        ("schemata", "L3:1=7ff\n", "Overlaps with exclusive group"),
        ("g/schemata", "L3:0=1f\n", "Overlaps with other group"),
    ] {
        refused(&mut tree, path, text, Errno::INVAL, status);
    }
    write(&mut tree, "g/schemata", "L3:0=7\n");
    write(&mut tree, "h/schemata", "L3:0=8\n");
}

#[test]
fn an_exclusive_group_keeps_off_the_ways_of_other_hardware() {
    let mut tree = tree(Profile::haswell());
    tree.mkdir("g", Writer::ROOT).unwrap();
    write(&mut tree, "schemata", "L3:0=f;1=f\n");
    write(&mut tree, "g/schemata", "L3:0=f00;1=f00\n");
    write(&mut tree, "g/mode", "exclusive\n");
    refused(&mut tree, "g/schemata", "L3:0=fff00\n", Errno::INVAL, "Overlaps with other group");
    write(&mut tree, "g/schemata", "L3:0=3ff00\n");
}

#[test]
fn overlap_is_tested_against_code_and_data_of_the_others() {
    let mut tree = tree(Profile::cdp());
    tree.mkdir("g", Writer::ROOT).unwrap();
    write(&mut tree, "schemata", "L3CODE:0=700;1=700\nL3DATA:0=700;1=700\n");
    write(&mut tree, "g/schemata", "L3CODE:0=f;1=f\nL3DATA:0=f0;1=f0\n");
    write(&mut tree, "g/mode", "exclusive\n");
    refused(&mut tree, "schemata", "L3DATA:0=1\n", Errno::INVAL, "Overlaps with exclusive group");
    refused(&mut tree, "schemata", "L3CODE:0=10\n", Errno::INVAL, "Overlaps with exclusive group");
    refused(&mut tree, "g/schemata", "L3DATA:0=100\n", Errno::INVAL, "Overlaps with other group");
}

#[test]
fn bandwidth_has_bounds_and_is_rounded_up() {
    let old = || Profile::intel().with_kernel(KernelVersion(6, 12));
    let not_linear = || {
        let mut profile = Profile::intel();
        profile.mb.as_mut().unwrap().delay_linear = false;
        profile
    };
    for (profile, value, status) in [
        (Profile::intel(), "x", "Invalid MB value x"),
        (Profile::intel(), "1f", "Invalid MB value 1f"),
        (Profile::intel(), "4294967296", "Invalid MB value 4294967296"),
        (old(), "x", "Non-decimal digit in MB value x"),
        (old(), "4294967296", "MB value 4294967296 out of range [10,100]"),
        (Profile::intel(), "9", "MB value 9 out of range [10,100]"),
        (Profile::intel(), "101", "MB value 101 out of range [10,100]"),
        (Profile::amd(), "2049", "MB value 2049 out of range [0,2048]"),
        (not_linear(), "50", "No support for non-linear MB domains"),
    ] {
        refused(&mut with_groups(profile), "g/schemata", &format!("MB:0={value}\n"), Errno::INVAL, status);
    }
    for (profile, value, stored) in [
        (Profile::intel(), "10", "    MB:0=10;1=100\n"),
        (Profile::intel(), "11", "    MB:0=20;1=100\n"),
        (Profile::intel(), "91", "    MB:0=100;1=100\n"),
        (Profile::amd(), "0", "    MB:0=0;8=2048\n"),
        (Profile::amd(), "2047", "    MB:0=2047;8=2048\n"),
    ] {
        let mut tree = with_groups(profile);
        write(&mut tree, "g/schemata", &format!("MB:0={value}\n"));
        assert!(read(&mut tree, "g/schemata").starts_with(stored), "{value}");
    }
}

#[test]
fn a_line_of_l2_is_like_one_of_l3() {
    let mut profile = Profile::l2_only();
    profile.mount = MountOptions { cdpl2: true, ..MountOptions::default() };
    let mut tree = tree(profile);
    tree.mkdir("g", Writer::ROOT).unwrap();
    write(&mut tree, "g/schemata", "L2CODE:7=3\n");
    let text = read(&mut tree, "g/schemata");
    let code = text.lines().find(|line| line.starts_with("L2CODE:")).unwrap();
    assert!(code.ends_with(";6=ff;7=3"), "{text}");
}

/// Length of the lowest contiguous run of ones, computed from the binary digits.
fn lowest_run(mask: u64) -> usize {
    let digits = format!("{mask:b}");
    digits.trim_end_matches('0').chars().rev().take_while(|&digit| digit == '1').count()
}

proptest! {
    #[test]
    fn a_mask_is_taken_if_and_only_if_it_obeys(
        ways in 1u32..=32, min in 0u32..=3, sparse: bool, narrow: u32, wide: u64, is_wide in 0..8u8,
    ) {
        let full = u32::MAX >> (32 - ways);
        let min = min.min(ways);
        let mask = if is_wide == 0 { wide } else { u64::from(narrow & full) };
        let mut profile = Profile::intel();
        let l3 = profile.l3.as_mut().unwrap();
        (l3.cbm_mask, l3.min_cbm_bits, l3.sparse) = (full, min, sparse);
        let mut tree = with_groups(profile);
        let before = read(&mut tree, "g/schemata");

        let ones = usize::try_from(mask.count_ones()).unwrap();
        let obeys = mask <= u64::from(full)
            && (mask != 0 || min == 0)
            && (sparse || lowest_run(mask) == ones)
            && lowest_run(mask) >= usize::try_from(min).unwrap();
        // The second value is valid, but only applies if the first is valid, too.
        let text = format!("L3:1={full:x};0={mask:x}\nMB:0=50\n");
        let taken = tree.write("g/schemata", text.as_bytes(), Writer::ROOT);
        prop_assert_eq!(taken.is_ok(), obeys, "{:x} of {:x}", mask, full);
        let after = if obeys { format!("    MB:0=50;1=100\n    L3:0={mask:x};1={full:x}\n") } else { before };
        prop_assert_eq!(read(&mut tree, "g/schemata"), after);
    }

    #[test]
    fn bandwidth_that_is_taken_reads_back_as_the_next_multiple(value in 0u32..130) {
        let mut tree = with_groups(Profile::intel());
        let taken = tree.write("g/schemata", format!("MB:0={value}\n").as_bytes(), Writer::ROOT);
        prop_assert_eq!(taken.is_ok(), (10..=100).contains(&value));
        let stored = if taken.is_ok() { value.next_multiple_of(10) } else { 100 };
        let expected = format!("    MB:0={stored};1=100\n");
        prop_assert!(read(&mut tree, "g/schemata").starts_with(&expected));
    }

    #[test]
    fn any_bytes_are_taken_or_refused_and_what_is_refused_changes_nothing(
        lines in proptest::collection::vec("[ L3MB:=;0-9a-fx]{0,12}", 0..4),
    ) {
        let mut tree = with_groups(Profile::intel());
        let before = read(&mut tree, "g/schemata");
        let text = lines.join("\n") + "\n";
        if let Err(errno) = tree.write("g/schemata", text.as_bytes(), Writer::ROOT) {
            prop_assert_eq!(errno, Errno::INVAL);
            prop_assert_eq!(read(&mut tree, "g/schemata"), before);
        }
    }
}
