use super::*;
use crate::restore::{Patience, restore};

const TIER: Target = Target::Tier(Tier::BestEffort);
/// The group that stands for the tier here.
const TIER_PATH: &str = "kubepods/burstable";
const SANDBOX: &str = "kubepods/burstable/podu/pause";
const CPUS: Knob = Knob::CpusetCpus;
const QUOTA: Knob = Knob::CfsQuota;

fn cpus(list: &str) -> Value {
    Value::Cpus(list.parse().unwrap())
}

fn env(versions: Versions, journal: Option<Journal>) -> Env {
    let mut host = Host::simulated(&Spec { versions, cpus: 8, ..Spec::default() }).unwrap();
    for path in [POD_PATH, APP_PATH, SANDBOX] {
        host.create(path).unwrap();
    }
    let mut env = Env::of(host, journal);
    env.ledger.open_cgroup(&mut env.host, TIER, TIER_PATH).unwrap();
    env
}

fn lists(env: &mut Env) -> [String; 4] {
    [TIER_PATH, POD_PATH, SANDBOX, APP_PATH]
        .map(|path| env.host.simulated_mut().unwrap().read_file(path, "cpuset.cpus").unwrap().trim().to_owned())
}

#[test]
fn on_v1_all_groups_below_are_narrowed_with_a_tier_and_come_back_with_it() {
    let mut env = env(Versions::V1, None);
    env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
    let applied = env.apply();
    assert!(applied.refused.is_empty() && applied.notices.is_empty());
    assert_eq!(lists(&mut env), ["2-3"; 4]);
    // To other CPUs.
    env.lease("a", 1, (TIER, CPUS), cpus("3-5"));
    let decided = env.tick().decisions.len();
    assert_eq!((lists(&mut env), decided), (["3-5"; 4].map(str::to_owned), 4));
    assert!(env.tick().decisions.is_empty());
    env.ledger.release("a");
    env.tick();
    assert_eq!(lists(&mut env), ["0-7"; 4]);
    env.ledger.close_spares(&mut env.host);
    assert_eq!(env.ledger.sizes().map(|(_, size)| size), [0; 7]);
}

#[test]
fn on_v1_groups_that_come_while_a_tier_is_narrow_are_widened_with_it() {
    let mut env = env(Versions::V1, None);
    env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
    env.apply();
    for late in ["kubepods/burstable/podlate", "kubepods/burstable/podlate/pause", "kubepods/burstable/podu/second"] {
        env.host.create(late).unwrap();
    }
    env.ledger.release("a");
    env.tick();
    for path in env.host.simulated_mut().unwrap().cgroups() {
        let list = env.host.simulated_mut().unwrap().read_file(&path, "cpuset.cpus").unwrap();
        assert_eq!(list.trim(), "0-7", "{path}");
    }
}

#[test]
fn on_v1_what_a_group_had_of_its_own_comes_back_as_it_was() {
    let mut env = env(Versions::V1, None);
    env.write(APP_PATH, "cpuset.cpus", "1-4");
    env.lease("a", 1, (TIER, CPUS), cpus("2-5"));
    env.apply();
    assert_eq!(lists(&mut env), ["2-5", "2-5", "2-5", "2-4"]);
    // If none of its own CPUs are left, a group gets those of the group above.
    env.lease("a", 1, (TIER, CPUS), cpus("6-7"));
    env.tick();
    assert_eq!(lists(&mut env), ["6-7"; 4]);
    env.ledger.release("a");
    env.tick();
    assert_eq!(lists(&mut env), ["0-7", "0-7", "0-7", "1-4"]);
}

#[test]
fn on_v1_a_lease_below_has_what_the_one_above_leaves_and_all_of_it_later() {
    let mut env = env(Versions::V1, None);
    env.lease("a", 1, (APP, CPUS), cpus("0-2"));
    env.lease("b", 1, (TIER, CPUS), cpus("2-3"));
    env.apply();
    assert_eq!(lists(&mut env), ["2-3", "2-3", "2-3", "2"]);
    let adjusted = env.ledger.held().get(&(APP, CPUS)).unwrap().adjusted.clone();
    assert_eq!(adjusted.unwrap().0, cpus("0-2"));
    env.ledger.release("b");
    env.tick();
    assert_eq!(lists(&mut env), ["0-7", "0-7", "0-7", "0-2"]);
    env.ledger.release("a");
    env.tick();
    assert_eq!(lists(&mut env), ["0-7"; 4]);
}

#[test]
fn on_v2_a_tier_alone_is_written() {
    let mut env = env(Versions::V2, None);
    env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
    assert_eq!(env.apply().decisions.len(), 1);
    assert_eq!(lists(&mut env), ["2-3", "", "", ""]);
    let effective = env.host.simulated_mut().unwrap().read_file(APP_PATH, "cpuset.cpus.effective").unwrap();
    assert_eq!(effective, "2-3\n");
    env.ledger.release("a");
    env.tick();
    // The kernel leaves no group with processes without a list, so all CPUs stand for none.
    assert_eq!(lists(&mut env), ["0-7", "", "", ""]);
}

#[test]
fn what_followed_is_restored_from_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(Versions::V1, Some(open_journal(folder.path())));
    env.write(APP_PATH, "cpuset.cpus", "1-4");
    env.lease("a", 1, (TIER, CPUS), cpus("2-5"));
    env.apply();
    env.lease("a", 1, (TIER, CPUS), cpus("4-6"));
    env.tick();
    // A container that comes late has the value without a write.
    env.host.create("kubepods/burstable/podu/late").unwrap();
    env.ledger.open_cgroup(&mut env.host, Target::Container(ContainerId(9)), "kubepods/burstable/podu/late").unwrap();
    env.ledger.opened(&mut env.host, &[Target::Container(ContainerId(9))]);
    env.tick();
    let Env { ledger, mut host, .. } = env;
    drop(ledger);
    for target in [TIER, POD, APP, Target::Container(ContainerId(9))] {
        host.detach(target);
    }
    let sandbox = host.attached_at(SANDBOX).unwrap();
    host.detach(sandbox);
    let restored = restore(&mut host, &open_journal(folder.path()), &Patience::default()).unwrap();
    assert_eq!(restored.len(), 5, "{restored:?}");
    for (path, list) in [
        (TIER_PATH, "0-7"),
        (POD_PATH, "0-7"),
        (SANDBOX, "0-7"),
        (APP_PATH, "1-4"),
        ("kubepods/burstable/podu/late", "0-7"),
    ] {
        assert_eq!(host.simulated_mut().unwrap().read_file(path, "cpuset.cpus").unwrap().trim(), list, "{path}");
    }
}

#[test]
fn on_v1_a_larger_quota_below_the_tier_is_lifted_as_long_as_the_tiers_bounds_it() {
    let mut env = env(Versions::V1, None);
    env.lease("batch", 1, (POD, QUOTA), n(150_000));
    env.lease("batch", 1, (APP, QUOTA), n(50_000));
    env.apply();
    env.lease("suppress", 1, (TIER, QUOTA), n(100_000));
    let applied = env.tick();
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    let quotas = |env: &mut Env| [TIER, POD, APP].map(|target| env.value((target, QUOTA)));
    assert_eq!(quotas(&mut env), [n(100_000), Value::Max, n(50_000)]);
    assert_eq!(env.ledger.held().get(&(POD, QUOTA)).unwrap().adjusted.as_ref().unwrap().0, n(150_000));
    env.lease("suppress", 1, (TIER, QUOTA), n(40_000));
    env.tick();
    assert_eq!(quotas(&mut env), [n(40_000), Value::Max, Value::Max]);
    env.lease("suppress", 1, (TIER, QUOTA), n(200_000));
    env.tick();
    assert_eq!(quotas(&mut env), [n(200_000), n(150_000), n(50_000)]);
    env.ledger.release("suppress");
    env.tick();
    assert_eq!(quotas(&mut env), [Value::Max, n(150_000), n(50_000)]);
    env.ledger.release("batch");
    env.tick();
    assert_eq!(quotas(&mut env), [Value::Max; 3]);
}

#[test]
fn on_v1_a_quota_that_no_policy_holds_comes_back_too() {
    let mut env = env(Versions::V1, None);
    env.write(POD_PATH, "cpu.cfs_quota_us", "150000");
    env.lease("suppress", 1, (TIER, QUOTA), n(100_000));
    env.apply();
    assert_eq!((env.value((TIER, QUOTA)), env.value((POD, QUOTA))), (n(100_000), Value::Max));
    env.ledger.release("suppress");
    env.tick();
    assert_eq!((env.value((TIER, QUOTA)), env.value((POD, QUOTA))), (Value::Max, n(150_000)));
}

#[test]
fn the_kubelets_new_list_for_a_container_is_its_new_baseline() {
    let mut env = env(Versions::V2, None);
    env.lease("a", 1, (APP, CPUS), cpus("2-3"));
    env.apply();
    // The CPU manager reconciles every ten seconds; what it shares out changes with each container that gets CPUs of its own.
    for (shared, _) in [("0-6", 1), ("0-5", 2), ("0-6", 3), ("0-5", 4), ("0-4", 5)] {
        env.write(APP_PATH, "cpuset.cpus", shared);
        env.later(10);
        assert_eq!(env.value((APP, CPUS)), cpus("2-3"), "{shared}");
    }
    env.ledger.release("a");
    env.tick();
    assert_eq!(env.value((APP, CPUS)), cpus("0-4"));
}

#[test]
fn shares_are_a_weight_by_the_kubelets_formula() {
    for (versions, shares, file, text) in [
        (Versions::V1, 2, "cpu.shares", "2"),
        (Versions::V1, 1024, "cpu.shares", "1024"),
        (Versions::V1, 512, "cpu.shares", "512"),
        (Versions::V2, 2, "cpu.weight", "1"),
        (Versions::V2, 1024, "cpu.weight", "39"),
        (Versions::V2, 262_144, "cpu.weight", "10000"),
    ] {
        let mut env = env(versions, None);
        let before = env.value((APP, Knob::CpuWeight));
        env.lease("a", 1, (APP, Knob::CpuWeight), Value::Shares(shares));
        assert!(env.apply().refused.is_empty());
        let found = env.host.simulated_mut().unwrap().read_file(APP_PATH, file).unwrap();
        assert_eq!(found.trim(), text, "{versions:?} {shares}");
        assert!(env.tick().decisions.is_empty(), "it is what was wanted");
        env.ledger.release("a");
        env.tick();
        assert_eq!(env.value((APP, Knob::CpuWeight)), before);
    }
    let mut env = env(Versions::V2, None);
    env.lease("a", 1, (APP, Knob::CpuWeight), Value::Shares(1));
    assert!(env.apply().refused.is_empty(), "less than the kernel takes comes to the least that it takes");
    assert_eq!(env.host.simulated_mut().unwrap().read_file(APP_PATH, "cpu.weight").unwrap().trim(), "1");
}

#[test]
fn on_v2_a_lease_of_all_cpus_is_no_drift() {
    let mut env = env(Versions::V2, None);
    for list in ["0-7", "2-3", "0-7"] {
        env.lease("a", 1, (TIER, CPUS), cpus(list));
        for _ in 0..3 {
            let notices = env.tick().notices;
            assert!(notices.is_empty(), "{list}: {notices:?}");
        }
    }
}

mod protected {
    use super::*;

    const PROXY_PATH: &str = "kubepods/burstable/podproxy";

    fn proxy() -> qosm_model::pod::Pod {
        let text = r#"{"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "proxy", "namespace": "kube-system", "uid": "proxy"},
            "spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Running", "qosClass": "BestEffort"}}"#;
        qosm_cluster::parse_objects(text, "proxy.json").pods.remove(0)
    }

    fn id(env: &Env, name: &str) -> PodId {
        env.pods.iter().find(|entry| entry.pod.name == name).unwrap().id
    }

    /// A pod's cgroup is opened.
    fn opens(env: &mut Env, name: &str, path: &str) -> Target {
        let target = Target::Pod(id(env, name));
        env.host.create(path).unwrap();
        env.ledger.open_cgroup(&mut env.host, target, path).unwrap();
        target
    }

    /// A protected pod comes.
    fn comes(env: &mut Env) {
        env.pods.update(vec![pod(), proxy()]);
        env.pods.protect(&[id(env, "proxy")], &env.config.guard_rails.protected_namespaces);
        opens(env, "proxy", PROXY_PATH);
        env.ledger.touch_tiers();
    }

    fn goes(env: &mut Env) {
        let target = Target::Pod(id(env, "proxy"));
        env.pods.update(vec![pod()]);
        env.ledger.forget_target(&mut env.host, target);
        env.host.simulated_mut().unwrap().remove_cgroup(PROXY_PATH).unwrap();
        env.ledger.touch_tiers();
    }

    fn of_proxy(env: &mut Env) -> String {
        env.host.simulated_mut().unwrap().read_file(PROXY_PATH, "cpuset.cpus").unwrap().trim().to_owned()
    }

    #[test]
    fn the_cpus_of_a_tier_with_a_protected_pod_are_set_on_the_others_and_go_back_and_forth() {
        for (versions, all, narrow, wide) in [
            (Versions::V1, ["0-7", "2-3", "2-3", "2-3"], ["3-5"; 4], "0-7"),
            (Versions::V2, ["", "2-3", "", ""], ["3-5", "0-7", "", ""], ""),
        ] {
            let mut env = env(versions, None);
            env.ledger.settle();
            comes(&mut env);
            env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
            env.apply();
            assert_eq!(
                (lists(&mut env), of_proxy(&mut env)),
                (all.map(str::to_owned), wide.to_owned()),
                "{versions:?}"
            );
            assert!(env.ledger.refusals()[&(TIER, CPUS)].why.contains("kube-system/proxy"));
            env.lease("a", 1, (TIER, CPUS), cpus("3-5"));
            env.tick();
            assert!(env.tick().decisions.is_empty(), "{versions:?}");
            assert_eq!(lists(&mut env)[1], "3-5", "{versions:?}");

            goes(&mut env);
            env.tick();
            assert_eq!(lists(&mut env), narrow, "{versions:?}");
            comes(&mut env);
            env.tick();
            let kept = lists(&mut env);
            assert!(["0-7", ""].contains(&kept[0].as_str()) && kept[1] == "3-5", "{versions:?}: {kept:?}");
            assert!(["0-7", ""].contains(&of_proxy(&mut env).as_str()), "{versions:?}");

            env.ledger.release("a");
            env.tick();
            assert!(lists(&mut env).iter().all(|list| ["0-7", ""].contains(&list.as_str())), "{versions:?}");
            env.ledger.close_spares(&mut env.host);
            assert_eq!((env.ledger.held().len(), env.ledger.refusals().len()), (0, 0), "{versions:?}");
        }
    }

    #[test]
    fn a_pod_that_comes_below_such_a_tier_gets_its_cpus() {
        for versions in [Versions::V1, Versions::V2] {
            let mut env = env(versions, None);
            comes(&mut env);
            env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
            env.apply();
            let late = {
                let text = r#"{"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "late", "namespace": "default", "uid": "late"},
                    "spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Running", "qosClass": "BestEffort"}}"#;
                qosm_cluster::parse_objects(text, "late.json").pods.remove(0)
            };
            env.pods.update(vec![pod(), proxy(), late]);
            let target = opens(&mut env, "late", "kubepods/burstable/podlate");
            env.ledger.adopt(&mut env.host, target);
            env.tick();
            assert_eq!(env.value((target, CPUS)), cpus("2-3"), "{versions:?}");
        }
    }

    #[test]
    fn what_an_earlier_agent_set_stays_until_all_policies_have_spoken() {
        for is_protected in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut env = env(Versions::V2, Some(open_journal(folder.path())));
            if is_protected {
                comes(&mut env);
            }
            env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
            env.apply();
            let attached: Vec<Target> = env.pods.ids().into_iter().map(Target::Pod).chain([TIER, APP]).collect();
            let Env { ledger, mut host, .. } = env;
            drop(ledger);
            attached.into_iter().for_each(|target| host.detach(target));
            let mut env = Env::of(host, Some(open_journal(folder.path())));
            env.ledger.open_cgroup(&mut env.host, TIER, TIER_PATH).unwrap();
            for target in [TIER, POD, APP] {
                env.ledger.adopt(&mut env.host, target);
            }
            let place = usize::from(is_protected);
            env.apply();
            assert_eq!(lists(&mut env)[place], "2-3", "protected: {is_protected}");
            env.ledger.settle();
            env.apply();
            assert!(["0-7", ""].contains(&lists(&mut env)[place].as_str()), "protected: {is_protected}");
        }
    }

    #[test]
    fn a_set_of_its_own_is_narrowed_to_that_of_such_a_tier() {
        for versions in [Versions::V1, Versions::V2] {
            let mut env = env(versions, None);
            comes(&mut env);
            env.lease("b", 1, (POD, CPUS), cpus("1-2"));
            env.lease("a", 1, (TIER, CPUS), cpus("2-3"));
            env.apply();
            assert_eq!(env.value((POD, CPUS)), cpus("2"), "{versions:?}");
            env.ledger.release("a");
            env.tick();
            assert_eq!(env.value((POD, CPUS)), cpus("1-2"), "{versions:?}");
        }
    }
}
