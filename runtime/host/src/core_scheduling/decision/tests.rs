use proptest::prelude::*;

use super::*;

fn cookies(numbers: &[u64]) -> BTreeSet<Cookie> {
    numbers.iter().filter_map(|&number| Cookie::new(number)).collect()
}

fn container(group: Option<usize>, noted: &[u64], processes: &[(u32, u64)]) -> Scanned {
    let process = |&(pid, cookie)| Process { pid, cookie: Cookie::new(cookie) };
    Scanned { group, noted: cookies(noted), processes: processes.iter().map(process).collect() }
}

/// Prints each group as `SOURCE: moves`, then the processes that are cleared.
fn shown(groups: usize, containers: &[Scanned]) -> String {
    let decision = decide(groups, containers);
    let pids = |moves: &[(usize, u32)]| moves.iter().map(|(_, pid)| format!(" {pid}")).collect::<String>();
    let group = |group: &GroupDecision| {
        let source = match &group.source {
            Source::None => "none".to_owned(),
            Source::New => "new".to_owned(),
            Source::Held { cookie, .. } => cookie.to_string(),
        };
        format!("{source}:{}", pids(&group.moves))
    };
    let groups: Vec<String> = decision.groups.iter().map(group).collect();
    format!("{} clear:{}", groups.join(" "), pids(&decision.cleared))
}

#[test]
fn a_group_keeps_what_most_of_its_processes_have_and_no_other_has_it() {
    for (what, groups, containers, expected) in [
        ("no process", 1, vec![container(Some(0), &[], &[])], "none: clear:"),
        ("the first time", 1, vec![container(Some(0), &[], &[(10, 0), (11, 0)])], "new: 10 11 clear:"),
        ("the same again", 1, vec![container(Some(0), &[7], &[(10, 7), (11, 7)])], "7: clear:"),
        ("one joined", 1, vec![container(Some(0), &[7], &[(10, 7), (11, 0)])], "7: 11 clear:"),
        (
            "a container came",
            1,
            vec![container(Some(0), &[7], &[(10, 7)]), container(Some(0), &[], &[(20, 0)])],
            "7: 20 clear:",
        ),
        (
            "two groups became one: most processes win",
            1,
            vec![container(Some(0), &[7], &[(10, 7)]), container(Some(0), &[8], &[(20, 8), (21, 8)])],
            "8: 10 clear:",
        ),
        (
            "at a tie the oldest wins",
            1,
            vec![container(Some(0), &[7], &[(30, 7)]), container(Some(0), &[8], &[(20, 8)])],
            "8: 30 clear:",
        ),
        (
            "one group became two: the larger part keeps the cookie",
            2,
            vec![container(Some(0), &[7], &[(10, 7)]), container(Some(1), &[7], &[(20, 7), (21, 7)])],
            "new: 10 7: clear:",
        ),
        ("wanted no longer", 0, vec![container(None, &[7], &[(10, 7), (11, 0)])], " clear: 10"),
        (
            "left behind by an agent that was killed while it moved the process",
            1,
            vec![container(Some(0), &[7, 8], &[(10, 7), (11, 8), (12, 8)])],
            "8: 10 clear:",
        ),
        ("of somebody else, alone", 1, vec![container(Some(0), &[], &[(10, 9)])], "none: clear:"),
        (
            "of somebody else, beside ours",
            1,
            vec![container(Some(0), &[7], &[(10, 9), (11, 7), (12, 0)])],
            "7: 12 clear:",
        ),
        ("of somebody else, wanted in no group", 0, vec![container(None, &[7], &[(10, 9)])], " clear:"),
        (
            "a process that went to another container with its cookie",
            2,
            vec![container(Some(0), &[7], &[(10, 7)]), container(Some(1), &[8], &[(20, 8), (11, 7)])],
            "7: 8: 11 clear:",
        ),
    ] {
        assert_eq!(shown(groups, &containers), expected, "{what}");
    }
}

const GROUPS: usize = 3;

/// Applies a decision as the kernel would, after writing the notes.
fn carry_out(containers: &mut [Scanned], decision: &Decision) {
    let mut next = 1000;
    let set = |containers: &mut [Scanned], place: usize, pid: u32, cookie: Option<Cookie>| {
        containers[place].noted.extend(cookie);
        let mut processes = containers[place].processes.iter_mut();
        processes.find(|process| process.pid == pid).unwrap().cookie = cookie;
    };
    for group in &decision.groups {
        let cookie = match group.source {
            Source::None => continue,
            Source::New => {
                next += 1;
                Cookie::new(next)
            }
            Source::Held { cookie, .. } => Some(cookie),
        };
        for &(place, pid) in &group.moves {
            set(containers, place, pid, cookie);
        }
    }
    for &(place, pid) in &decision.cleared {
        set(containers, place, pid, None);
    }
}

fn nodes() -> impl Strategy<Value = Vec<Scanned>> {
    let scanned = (
        proptest::option::of(0..GROUPS),
        proptest::collection::btree_set(1_u64..6, 0..3),
        proptest::collection::vec(0_u64..8, 0..5),
    );
    proptest::collection::vec(scanned, 0..6).prop_map(|containers| {
        let mut pid = 0;
        let mut process = |cookie| {
            pid += 1;
            Process { pid, cookie: Cookie::new(cookie) }
        };
        let mut scanned = |(group, noted, found): (_, BTreeSet<u64>, Vec<u64>)| Scanned {
            group,
            noted: noted.into_iter().filter_map(Cookie::new).collect(),
            processes: found.into_iter().map(&mut process).collect(),
        };
        containers.into_iter().map(&mut scanned).collect()
    })
}

proptest! {
    #[test]
    fn two_groups_never_share_a_cookie_and_the_same_again_changes_nothing(mut containers in nodes()) {
        let before = containers.clone();
        let own: BTreeSet<Cookie> = before.iter().flat_map(|container| container.noted.clone()).collect();
        carry_out(&mut containers, &decide(GROUPS, &before));

        let mut of: BTreeMap<Cookie, Option<usize>> = BTreeMap::new();
        for (container, earlier) in containers.iter().zip(&before) {
            for (process, earlier) in container.processes.iter().zip(&earlier.processes) {
                let Some(cookie) = process.cookie else {
                    prop_assert_eq!(container.group, None, "a member without a cookie");
                    continue;
                };
                if earlier.cookie.is_some_and(|cookie| !own.contains(&cookie)) {
                    prop_assert_eq!(process, earlier, "somebody else's cookie");
                    continue;
                }
                prop_assert!(container.group.is_some(), "a cookie without a group");
                prop_assert_eq!(*of.entry(cookie).or_insert(container.group), container.group);
            }
        }

        let again = decide(GROUPS, &containers);
        prop_assert!(again.cleared.is_empty());
        for group in again.groups {
            prop_assert!(group.moves.is_empty() && group.source != Source::New);
        }
    }
}
