use proptest::prelude::*;
use qosm_resctrl_fuse::{Cache, Profile};

use crate::{Root, names};

/// A cache of any size, and any mask, which may not fit.
fn cache() -> impl Strategy<Value = (Cache, u64)> {
    (1..=32u32, any::<bool>(), any::<u32>(), prop_oneof![any::<u64>(), 0..1u64 << 33, 0..64u64]).prop_flat_map(
        |(ways, sparse, shareable, mask)| {
            let cbm_mask = u32::MAX >> (32 - ways);
            (0..=ways.min(4)).prop_map(move |min_cbm_bits| {
                let shareable_bits = shareable & cbm_mask;
                let cache =
                    Cache { cbm_mask, min_cbm_bits, shareable_bits, sparse, num_closids: 4, cdp_capable: false };
                (cache, mask)
            })
        },
    )
}

fn mask_of(schemata: &str) -> u32 {
    let (_, values) = schemata.trim().split_once(':').unwrap();
    let (_, mask) = values.split(';').next().unwrap().split_once('=').unwrap();
    u32::from_str_radix(mask, 16).unwrap()
}

proptest! {
    #[test]
    fn an_accepted_mask_is_one_that_the_hardware_takes_and_a_refused_one_changes_nothing((cache, mask) in cache()) {
        let mut profile = Profile::l3_only();
        profile.l3 = Some(cache.clone());
        let mut root = Root::with_groups(profile, &["g"]);
        let before = root.read("g/schemata");
        match root.write("g/schemata", &format!("L3:0={mask:x}\n")) {
            Ok(()) => {
                let stored = mask_of(&root.read("g/schemata"));
                prop_assert_eq!(u64::from(stored), mask);
                prop_assert_eq!(stored & !cache.cbm_mask, 0);
                prop_assert!(stored.count_ones() >= cache.min_cbm_bits);
                let holes = stored.count_ones() + stored.leading_zeros() + stored.trailing_zeros() != 32;
                prop_assert!(cache.sparse || stored == 0 || !holes);
                prop_assert_eq!(root.status(), "ok");
            }
            Err(_) => {
                prop_assert_eq!(root.read("g/schemata"), before);
                prop_assert_ne!(root.status(), "ok");
            }
        }
    }

    #[test]
    fn no_write_takes_effect_in_part(
        text in prop_oneof![
            "[ -~\n]{0,60}\n",
            "((L3|MB|L3CODE| L3 ):([0-2x ]=[0-9a-fx]{0,4};?){0,3}\n){1,3}",
        ],
    ) {
        let mut root = Root::with_groups(Profile::intel(), &["g", "h"]);
        let before = root.read("g/schemata");
        if root.write("g/schemata", &text).is_err() {
            prop_assert_eq!(root.read("g/schemata"), before);
        } else {
            prop_assert_eq!(root.status(), "ok");
        }
        prop_assert_eq!(root.read("h/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    }

    #[test]
    fn whatever_is_done_exclusive_ways_have_one_owner(
        steps in proptest::collection::vec((0..4usize, 0..2u32, 0..11u32, 1..11u32, 0..6u8), 1..40),
    ) {
        let groups = ["", "a", "b", "c"];
        let mut root = Root::with_groups(Profile::intel(), &groups[1..]);
        for (group, domain, first, ways, what) in steps {
            let group = groups[group];
            // The write may fail; this test does not check that.
            let _ = match what {
                0 => root.write(&format!("{group}/mode"), "exclusive\n"),
                1 => root.write(&format!("{group}/mode"), "shareable\n"),
                2 if !group.is_empty() => root.tree.rmdir(group).and_then(|()| root.mkdir(group)),
                _ => {
                    let mask = ((1u32 << ways) - 1) << first & 0x7ff;
                    root.write(&format!("{group}/schemata"), &format!("L3:{domain}={mask:x}\n"))
                }
            };
            let mut taken = [0u32; 2];
            let mut exclusive = [0u32; 2];
            for group in groups {
                if !group.is_empty() && !names(&root.tree, "").contains(&group.to_owned()) {
                    continue;
                }
                let schemata = root.read(&format!("{group}/schemata"));
                let line = schemata.lines().find_map(|line| line.trim().strip_prefix("L3:")).unwrap().to_owned();
                let is_exclusive = root.read(&format!("{group}/mode")) == "exclusive\n";
                for (index, value) in line.split(';').enumerate() {
                    let mask = u32::from_str_radix(value.split_once('=').unwrap().1, 16).unwrap();
                    prop_assert!(mask != 0);
                    prop_assert_eq!(mask & exclusive[index], 0);
                    if is_exclusive {
                        prop_assert_eq!(mask & taken[index], 0);
                        exclusive[index] |= mask;
                    }
                    taken[index] |= mask;
                }
            }
        }
    }
}
