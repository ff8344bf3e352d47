//! Reconciles classes on all kinds of machines: their shares, groups, threads and counters as all of them change.

mod counting;
mod moving;
mod sharing;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{BandwidthShare, CacheShare, ClassOutcome, DomainId, Share, Shares, WantedClass};

use super::cgroup::host;
use super::*;

/// A host, and containers with ids from 0 on, whose cgroups are empty at first.
struct Node {
    host: Host,
    cgroups: Vec<Cgroup>,
    machine: Machine,
}

impl Node {
    fn new(machine: impl FnOnce(&[Cgroup]) -> Option<Machine>, containers: u32) -> Option<Self> {
        let cgroups: Vec<Cgroup> = (0..containers).map(|_| Cgroup::new()).collect();
        let machine = machine(&cgroups)?;
        let mut node = Self { host: host(), cgroups, machine };
        node.restart();
        Some(node)
    }

    fn of(profile: Profile, containers: u32) -> Option<Self> {
        Self::new(|_| Machine::of(profile), containers)
    }

    /// Another agent takes over from a killed one.
    fn restart(&mut self) {
        self.host = host();
        self.host.use_resctrl_at(Some(self.machine.path.clone()));
        for (id, cgroup) in (0..).zip(&self.cgroups) {
            self.host.attach(Target::Container(ContainerId(id)), cgroup.path()).unwrap();
        }
    }

    fn keep(&mut self, wanted: &[WantedClass]) -> Vec<ClassOutcome> {
        self.host.reconcile_classes(wanted, &[])
    }

    fn exists(&self, path: &str) -> bool {
        std::path::Path::new(&format!("{}/{path}", self.machine.path)).exists()
    }

    /// Names of all control groups, sorted.
    fn control_groups(&self) -> Vec<String> {
        let present = self.machine.groups.present().unwrap();
        let own = present.own.iter().filter(|group| matches!(group, Group::Control(_))).map(Group::to_string);
        let mut names: Vec<_> = own.chain(present.foreign).collect();
        names.sort_unstable();
        names
    }
}

fn ways(start: u32, end: u32) -> Option<CacheShare> {
    Some(CacheShare::Percent { start, end })
}

fn mask(bits: u64) -> Option<CacheShare> {
    Some(CacheShare::Mask(bits))
}

fn percent(percent: u32) -> Option<BandwidthShare> {
    Some(BandwidthShare::Percent(percent))
}

fn shares(cache: Option<CacheShare>, bandwidth: Option<BandwidthShare>) -> Shares {
    Shares { all: Share { cache, bandwidth }, domains: BTreeMap::new() }
}

fn class(name: &str, shares: Shares, members: &[u32]) -> WantedClass {
    WantedClass {
        policy: "p".into(),
        class: name.parse().unwrap(),
        shares: Arc::new(shares),
        members: members.iter().copied().map(ContainerId).collect(),
    }
}

/// The lower 30 % of the cache, and half of the bandwidth.
fn be(members: &[u32]) -> WantedClass {
    class("be", shares(ways(0, 30), percent(50)), members)
}

#[test]
fn every_machine_gives_what_it_can() {
    const NO_CACHE: &str = "its part of the cache is not in force: this machine divides no cache";
    const NO_BANDWIDTH: &str =
        "its part of the memory bandwidth is not in force: this machine divides no memory bandwidth";
    for (profile, schemata, why) in [
        ("intel", "L3:0=f;1=f MB:0=50;1=50", ""),
        ("intel-20-ways", "L3:0=3f;1=3f;2=3f;3=3f MB:0=50;1=50;2=50;3=50", ""),
        ("haswell", "L3:0=3f;1=3f", NO_BANDWIDTH),
        ("amd", "L3:0=1f;8=1f MB:0=80;8=80", ""),
        ("l3-only", "L3:0=f;1=f", NO_BANDWIDTH),
        ("l2-only", "L2:0=7;1=7;2=7;3=7;4=7;5=7;6=7;7=7", NO_BANDWIDTH),
        ("mb-only", "MB:0=50;1=50", NO_CACHE),
        ("cdp", "L3CODE:0=f;1=f L3DATA:0=f;1=f MB:0=50;1=50", ""),
        ("few-closids", "L3:0=f;1=f MB:0=50;1=50", ""),
        ("sub-numa", "L3:0=f;1=f MB:0=50;1=50", ""),
        ("monitor-only", "", "resctrl only counts on this machine: it divides neither caches nor memory bandwidth"),
    ] {
        let Some(mut node) = Node::of(Profile::named(profile).unwrap(), 1) else { return };
        let before = node.machine.seen();
        let outcomes = node.keep(&[be(&[0])]);
        let [outcome] = outcomes.as_slice() else { unreachable!("{outcomes:?}") };
        assert_eq!((outcome.schemata.as_str(), outcome.why.as_str()), (schemata, why), "{profile}");
        assert_eq!(outcome.in_force, !schemata.is_empty(), "{profile}");
        assert_eq!(outcome.group, if schemata.is_empty() { "" } else { "qosm-p-be" }, "{profile}");
        // Reconciling again changes nothing, and returns the same.
        let kept = node.machine.seen();
        assert_eq!(node.keep(&[be(&[0])]), outcomes, "{profile}");
        assert_eq!(node.machine.seen(), kept, "{profile}");
        assert_eq!(node.keep(&[]), []);
        assert_eq!(node.machine.seen(), before, "{profile}");
    }
    // The loop covers every profile except the one without resctrl.
    assert_eq!(Profile::NAMES.len(), 12);
}

#[test]
fn without_resctrl_the_reason_is_reported() {
    let point = tempfile::tempdir().unwrap();
    let mut host = host();
    host.use_resctrl_at(Some(point.path().to_str().unwrap().to_owned()));
    for _ in 0..3 {
        let outcome = host.reconcile_classes(&[be(&[])], &[]).remove(0);
        assert!(!outcome.in_force && outcome.group.is_empty(), "{outcome:?}");
        assert!(outcome.why.starts_with("resctrl is not "), "{outcome:?}");
    }
    assert!(host.cache_domains().is_empty());
    assert_eq!(host.read_resctrl(), Default::default());
    assert_eq!(host.clear_classes().unwrap(), Vec::<String>::new());
}

#[test]
fn an_impossible_share_is_left_out_and_reported_and_the_rest_is_in_force() {
    for (profile, share, schemata, why) in [
        (
            "intel",
            shares(mask(0b101), percent(50)),
            "L3:0=7ff;1=7ff MB:0=50;1=50",
            "the ways 5 are not in force: this processor takes no holes between them; name one run, or a range in percent",
        ),
        (
            "intel",
            shares(mask(0xfff), percent(35)),
            "L3:0=7ff;1=7ff MB:0=40;1=40",
            "the ways fff are not in force: this cache has 7ff; name ways within them, or a range in percent",
        ),
        (
            "haswell",
            shares(mask(0b10), None),
            "",
            "the ways 2 are not in force: this processor takes no fewer than 2; name more, or a range in percent",
        ),
        ("amd", shares(mask(0b101), None), "L3:0=5;8=5 MB:0=2048;8=2048", ""),
        (
            "intel",
            shares(ways(0, 10), Some(BandwidthShare::Megabytes(500))),
            "L3:0=3;1=3 MB:0=100;1=100",
            "500 MB/s are not in force: resctrl is not mounted with mba_MBps; ask for percent, or mount it with that option",
        ),
        (
            "mb-only",
            shares(ways(0, 10), None),
            "",
            "its part of the cache is not in force: this machine divides no cache",
        ),
        ("intel", shares(None, None), "L3:0=7ff;1=7ff MB:0=100;1=100", ""),
        ("intel", shares(ways(99, 100), percent(1)), "L3:0=400;1=400 MB:0=10;1=10", ""),
    ] {
        let Some(mut node) = Node::of(Profile::named(profile).unwrap(), 1) else { return };
        for members in [&[0][..], &[]] {
            let outcome = node.keep(&[class("x", share.clone(), members)]).remove(0);
            let (group, schemata) = if members.is_empty() { ("", "") } else { ("qosm-p-x", schemata) };
            assert_eq!((outcome.why.as_str(), outcome.schemata.as_str()), (why, schemata), "{profile} {share:?}");
            // Without members the expected outcome is returned.
            assert_eq!(outcome.group, if schemata.is_empty() { "" } else { group }, "{profile} {share:?}");
        }
    }
}

#[test]
fn domains_may_differ_and_a_missing_one_is_reported() {
    let Some(mut node) = Node::of(Profile::amd(), 1) else { return };
    let own = |cache, bandwidth| Share { cache, bandwidth };
    let domains = BTreeMap::from([(DomainId(8), own(mask(0xf0), None)), (DomainId(1), own(None, percent(10)))]);
    let all = own(ways(0, 50), percent(25));
    let outcome = node.keep(&[class("x", Shares { all, domains }, &[0])]).remove(0);
    assert_eq!(outcome.schemata, "L3:0=ff;8=f0 MB:0=40;8=40");
    assert_eq!(outcome.why, "its shares of domain 1 are not in force: only domains 0, 8 are online");
    assert!(outcome.in_force);
    // With a configured full bandwidth of a cache's cores.
    node.host.set_full_bandwidth(Some(60_000));
    let outcome = node.keep(&[class("x", shares(None, percent(50)), &[0])]).remove(0);
    assert_eq!(outcome.schemata, "L3:0=ffff;8=ffff MB:0=240;8=240");
}

#[test]
fn a_class_has_a_group_while_it_has_members() {
    let Some(mut node) = Node::of(Profile::intel(), 2) else { return };
    let outcome = node.keep(&[be(&[])]).remove(0);
    assert_eq!(outcome, ClassOutcome { in_force: true, ..ClassOutcome::default() });
    assert!(!node.exists("qosm-p-be"));
    // A container that is not attached does not count.
    assert_eq!(node.keep(&[be(&[7])]).remove(0).group, "");
    assert_eq!(node.keep(&[be(&[0])]).remove(0).group, "qosm-p-be");
    assert!(node.exists("qosm-p-be"));
    assert_eq!(node.keep(&[be(&[])]).remove(0).group, "");
    assert!(!node.exists("qosm-p-be"));
}

#[test]
fn policies_whose_names_run_together_have_groups_apart() {
    let Some(mut node) = Node::of(Profile::intel(), 2) else { return };
    let of = |policy: &str, name: &str, end, member: u32| WantedClass {
        policy: policy.into(),
        ..class(name, shares(ways(0, end), None), &[member])
    };
    let wanted = [of("a", "b-c", 10, 0), of("a-b", "c", 50, 1), of("team/x", "c", 50, 1)];
    let outcomes = node.keep(&wanted);
    let groups: Vec<_> = outcomes.iter().map(|outcome| outcome.group.as_str()).collect();
    // The third has no members: the second already has them.
    assert_eq!(groups, ["qosm-a-b-c", "qosm-a-b-c.2", ""]);
    let outcomes = node.keep(&wanted[2..]);
    assert_eq!(outcomes[0].group, "qosm-team_x-c");
}

#[test]
fn a_change_of_shares_is_written_and_so_is_what_others_changed() {
    let Some(mut node) = Node::of(Profile::intel(), 1) else { return };
    node.keep(&[be(&[0])]);
    let outcome = node.keep(&[class("be", shares(ways(50, 100), None), &[0])]).remove(0);
    assert_eq!(outcome.schemata, "L3:0=7c0;1=7c0 MB:0=100;1=100");
    node.machine.others(|tree| tree.write("qosm-p-be/schemata", b"L3:1=1\nMB:0=20\n", Writer::ROOT)).unwrap();
    assert_eq!(node.keep(&[class("be", shares(ways(50, 100), None), &[0])]).remove(0), outcome);
    // A group that another program removes is created again.
    node.machine.others(|tree| tree.rmdir("qosm-p-be")).unwrap();
    assert_eq!(node.keep(&[class("be", shares(ways(50, 100), None), &[0])]).remove(0), outcome);
    assert!(node.exists("qosm-p-be"));
}

#[test]
fn an_exclusive_group_of_others_stays_exclusive() {
    let Some(mut node) = Node::of(Profile::intel(), 2) else { return };
    node.machine.others(|tree| {
        tree.mkdir("lab", Writer::ROOT).unwrap();
        for (file, text) in
            [("schemata", "L3:0=7f;1=7f\n"), ("lab/schemata", "L3:0=780;1=780\n"), ("lab/mode", "exclusive\n")]
        {
            tree.write(file, text.as_bytes(), Writer::ROOT).unwrap();
        }
    });
    let wanted =
        [class("free", shares(None, percent(50)), &[0]), class("high", shares(ways(60, 100), percent(30)), &[1])];
    for _ in 0..40 {
        let outcomes = node.keep(&wanted);
        // A class with the whole cache gets all ways that are not exclusive.
        assert_eq!((outcomes[0].schemata.as_str(), outcomes[0].why.as_str()), ("L3:0=7f;1=7f MB:0=50;1=50", ""));
        assert_eq!(outcomes[1].schemata, "L3:0=7f;1=7f MB:0=30;1=30");
        assert!(outcomes[1].in_force && outcomes[1].why.contains("Overlaps with exclusive group"), "{outcomes:?}");
    }
    node.machine.others(|tree| tree.rmdir("lab")).unwrap();
    // The host tries the refused value again after some calls.
    let outcome = (0..40).map(|_| node.keep(&wanted).remove(1)).find(|outcome| outcome.why.is_empty()).unwrap();
    assert_eq!(outcome.schemata, "L3:0=780;1=780 MB:0=30;1=30");
}

#[test]
fn a_cache_that_comes_back_is_divided_again() {
    let Some(mut node) = Node::of(Profile::intel(), 1) else { return };
    let ids = |node: &mut Node| node.host.cache_domains().iter().map(|domain| domain.id.0).collect::<Vec<_>>();
    node.keep(&[be(&[0])]);
    assert_eq!(ids(&mut node), [0, 1]);
    node.machine.others(|tree| tree.offline_l3(1));
    assert_eq!(node.keep(&[be(&[0])]).remove(0).schemata, "L3:0=f MB:0=50");
    assert_eq!(ids(&mut node), [0]);
    node.machine.others(|tree| tree.online_l3(1));
    // While all of it is free.
    assert!(node.machine.text("qosm-p-be/schemata").contains("1=7ff"));
    let outcome = node.keep(&[be(&[0])]).remove(0);
    assert_eq!((outcome.schemata.as_str(), outcome.why.as_str()), ("L3:0=f;1=f MB:0=50;1=50", ""));
    assert_eq!(ids(&mut node), [0, 1]);
}

#[test]
fn domains_say_what_can_be_divided_there() {
    for (profile, count, cache_ways, cache, divides_bandwidth) in [
        ("intel", 2, 11, Some(22 << 20), true),
        ("haswell", 2, 20, Some(40 << 20), false),
        ("amd", 2, 16, Some(32 << 20), true),
        ("cdp", 2, 11, Some(22 << 20), true),
        ("l2-only", 8, 8, Some(2 << 20), false),
        ("mb-only", 2, 0, None, true),
        ("monitor-only", 2, 0, None, false),
    ] {
        let Some(mut node) = Node::of(Profile::named(profile).unwrap(), 0) else { return };
        let domains = node.host.cache_domains();
        assert_eq!(domains.len(), count, "{profile}");
        for domain in domains {
            assert_eq!(domain.cache_ways, cache_ways, "{profile}");
            assert_eq!(domain.cache.map(|cache| cache.0), cache, "{profile}");
            assert_eq!(domain.divides_bandwidth, divides_bandwidth, "{profile}");
        }
    }
}

#[test]
fn a_vanished_mount_is_reported_and_used_again_when_it_is_back() {
    let Some(mut node) = Node::of(Profile::intel(), 1) else { return };
    assert!(node.keep(&[be(&[0])])[0].in_force);
    // A lazy unmount, since the host has files open.
    node.machine.mounted = None;
    for _ in 0..2 {
        let outcome = node.keep(&[be(&[0])]).remove(0);
        assert!(!outcome.in_force && outcome.why.contains("nothing is mounted"), "{outcome:?}");
    }
    assert!(node.host.cache_domains().is_empty());
    assert_eq!(node.host.clear_classes().unwrap(), Vec::<String>::new());
    let path = std::path::PathBuf::from(&node.machine.path);
    node.machine.mounted = Some(mount_emulated(Profile::amd(), Scripted::new([1]), &path));
    let outcome = (0..40).map(|_| node.keep(&[be(&[0])]).remove(0)).find(|outcome| outcome.in_force).unwrap();
    assert_eq!(outcome.schemata, "L3:0=1f;8=1f MB:0=80;8=80");
}

prop_compose! {
    fn any_share()(
        cache in prop_oneof![
            Just(None),
            (0_u32..100, 1_u32..=100).prop_map(|(start, more)| ways(start, (start + more).min(100))),
            (1_u64..1 << 21).prop_map(mask),
        ],
        bandwidth in prop_oneof![Just(None), (1_u32..=100).prop_map(percent), (1_u32..90_000).prop_map(|most| Some(BandwidthShare::Megabytes(most)))],
    ) -> Share {
        Share { cache, bandwidth }
    }
}

#[test]
fn no_share_makes_schemata_that_a_kernel_refuses() {
    for profile in Profile::NAMES.iter().filter(|name| **name != "none") {
        let Some(mut node) = Node::of(Profile::named(profile).unwrap(), 1) else { return };
        let shares = (any_share(), proptest::collection::btree_map((0_u32..9).prop_map(DomainId), any_share(), 0..3));
        let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
        let node = std::cell::RefCell::new(&mut node);
        runner
            .run(&shares, |(all, domains)| {
                let outcome = node.borrow_mut().keep(&[class("x", Shares { all, domains }, &[0])]).remove(0);
                prop_assert!(!outcome.why.contains("the kernel"), "{profile}: {outcome:?}");
                prop_assert!(outcome.in_force || !outcome.why.is_empty(), "{profile}: {outcome:?}");
                prop_assert_eq!(outcome.in_force, !outcome.schemata.is_empty());
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn the_first_need_mounts_at_once() {
    let Some(mut node) = Node::of(Profile::intel(), 1) else { return };
    let path = std::path::PathBuf::from(&node.machine.path);
    node.machine.mounted = None;
    assert_eq!(node.keep(&[]), []);
    assert!(node.host.cache_domains().is_empty());
    node.machine.mounted = Some(mount_emulated(Profile::intel(), Scripted::new([1]), &path));
    assert!(node.keep(&[be(&[0])])[0].in_force);
}
