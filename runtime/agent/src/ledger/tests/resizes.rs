use super::*;

const QUOTA: Key = (APP, Knob::CfsQuota);
const BURST: Key = (APP, Knob::CfsBurst);

/// A node on which the kubelet gave the container this quota.
fn given(quota: &str) -> Env {
    let mut env = Env::new();
    kubelet_writes(&mut env, quota);
    env
}

fn kubelet_writes(env: &mut Env, quota: &str) {
    for path in [POD_PATH, APP_PATH] {
        env.write(path, "cpu.max", &format!("{quota} 100000"));
    }
    env.with(|ledger, host, inputs| ledger.read_quotas(host, inputs, &[POD, APP]));
}

/// The API server shows another limit.
fn ask_for(env: &mut Env, cpu: &str) {
    let changes = env.pods.update(vec![limited_to(cpu)]);
    assert_eq!(changes.cpu_resized, [PodId(1)]);
    assert!(changes.resized.is_empty(), "its memory is as it was");
    env.pods.note_resized(changes.resized, &changes.cpu_resized, Timestamp(0));
    env.ledger.touch_cpu(&env.pods, &changes.cpu_resized);
}

#[test]
fn burst_and_quota_make_way_before_the_kubelet_writes_a_smaller_quota() {
    let mut env = given("100000");
    env.lease("a", 1, QUOTA, n(300_000));
    env.lease("a", 1, BURST, n(1_000_000));
    env.apply();
    assert_eq!(
        (env.value(QUOTA), env.value(BURST)),
        (n(300_000), n(100_000)),
        "as much as the kubelet could write again"
    );

    ask_for(&mut env, "500m");
    env.tick();
    assert_eq!((env.value(QUOTA), env.value(BURST)), (n(100_000), n(50_000)), "nothing is raised meanwhile");

    kubelet_writes(&mut env, "50000");
    env.tick();
    assert_eq!(env.ledger.held().get(&QUOTA).unwrap().baseline, n(50_000));
    assert_eq!((env.value(QUOTA), env.value(BURST)), (n(300_000), n(50_000)), "the lease is on top again");
    env.ledger.release("a");
    env.apply();
    assert_eq!((env.value(QUOTA), env.value(BURST)), (n(50_000), n(0)));
}

#[test]
fn what_the_kubelet_has_shrunk_stays_until_the_status_says_so() {
    let mut env = Env::new();
    let mut pod = limited_to("1");
    let app = &mut pod.containers[0];
    app.next = Some(app.resources(qosm_model::pod::Moment::Now));
    app.cpu_limit = Some(qosm_model::unit::MilliCpu(2000));
    env.pods.update(vec![pod]);
    kubelet_writes(&mut env, "100000");
    // What a policy decides by the limit of the status.
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    assert_eq!(env.value(QUOTA), n(100_000));

    ask_for(&mut env, "1");
    env.lease("a", 1, QUOTA, n(300_000));
    env.tick();
    assert_eq!(env.value(QUOTA), n(300_000));
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(QUOTA), n(100_000));
}

#[test]
fn what_grows_is_raised_from_what_the_kubelet_has_given() {
    let mut env = given("100000");
    env.lease("a", 1, BURST, n(1_000_000));
    env.apply();
    ask_for(&mut env, "3");
    env.tick();
    assert_eq!(env.value(BURST), n(100_000), "not before it has the quota");
    kubelet_writes(&mut env, "300000");
    env.tick();
    assert_eq!(env.value(BURST), n(300_000));
}

#[test]
fn a_pod_that_grew_does_not_come_back_below_its_containers() {
    const OF_POD: Key = (POD, Knob::CfsQuota);
    for (versions, file, period) in [(Versions::V1, "cpu.cfs_quota_us", ""), (Versions::V2, "cpu.max", " 100000")] {
        let mut env = Env::on(versions, None);
        env.pods.update(vec![limited_to("100m")]);
        for path in [APP_PATH, POD_PATH] {
            env.write(path, file, &format!("10000{period}"));
        }
        env.with(|ledger, host, inputs| ledger.read_quotas(host, inputs, &[POD, APP]));
        env.lease("a", 1, OF_POD, n(12_000));
        env.lease("a", 1, QUOTA, n(12_000));
        env.apply();

        // The policy raises the container to its new limit before the kubelet writes that.
        ask_for(&mut env, "1");
        env.lease("a", 1, OF_POD, n(112_000));
        env.lease("a", 1, QUOTA, n(100_000));
        env.tick();
        assert_eq!((env.value(OF_POD), env.value(QUOTA)), (n(112_000), n(100_000)), "{versions:?}");
        env.ledger.release("a");
        let applied = env.apply();
        assert!(applied.refused.is_empty(), "{versions:?}: {:?}", applied.refused);
        assert_eq!((env.value(OF_POD), env.value(QUOTA)), (n(100_000), n(100_000)), "{versions:?}");
    }
}

#[test]
fn a_quota_that_a_person_left_to_a_pod_comes_back() {
    const OF_POD: Key = (POD, Knob::CfsQuota);
    let mut env = given("100000");
    env.write(POD_PATH, "cpu.max", "50000 100000");
    env.lease("a", 1, OF_POD, n(120_000));
    env.lease("a", 1, QUOTA, n(120_000));
    env.apply();
    assert_eq!((env.value(OF_POD), env.value(QUOTA)), (n(120_000), n(120_000)));
    env.ledger.release("a");
    env.apply();
    assert_eq!((env.value(OF_POD), env.value(QUOTA)), (n(50_000), n(100_000)));
}

#[test]
fn where_there_is_no_quota_no_burst_keeps_the_first_one_out() {
    let mut env = Env::new();
    let changes = env.pods.update(vec![limited_to("0")]);
    env.pods.note_resized(changes.resized, &changes.cpu_resized, Timestamp(0));
    env.ledger.touch_cpu(&env.pods, &changes.cpu_resized);
    kubelet_writes(&mut env, "max");
    env.lease("a", 1, BURST, n(200_000));
    env.apply();
    assert_eq!(env.value(BURST), n(0));
    assert!(env.ledger.refusals().get(&BURST).is_some_and(|refusal| refusal.why.contains("there is no quota")));
}

#[test]
fn a_lease_that_equals_a_wish_is_no_baseline() {
    let mut env = given("100000");
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    // Two CPUs are asked for and refused: the node still runs one.
    let mut pod = limited_to("2");
    let app = &mut pod.containers[0];
    app.next = Some(app.resources(qosm_model::pod::Moment::Now));
    app.cpu_limit = Some(qosm_model::unit::MilliCpu(1000));
    env.pods.update(vec![pod]);
    env.tick();
    assert_eq!(env.ledger.held().get(&QUOTA).unwrap().baseline, n(100_000));
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(QUOTA), n(100_000));
}

#[test]
fn an_idle_container_takes_the_weight_of_another_request() {
    const IDLE: Key = (APP, Knob::CpuIdle);
    const WEIGHT: Key = (APP, Knob::CpuWeight);
    let mut env = Env::new();
    env.write(APP_PATH, "cpu.weight", "20");
    env.lease("a", 1, IDLE, n(1));
    env.apply();
    assert_eq!(env.value(IDLE), n(1));

    let resized = |is_done: bool| {
        let mut pod = limited_to("1");
        let app = &mut pod.containers[0];
        let mut next = app.resources(qosm_model::pod::Moment::Now);
        next.cpu_request = Some(qosm_model::unit::MilliCpu(1000));
        match is_done {
            true => app.cpu_request = next.cpu_request,
            false => app.next = Some(next),
        }
        pod
    };
    let changes = env.pods.update(vec![resized(false)]);
    env.pods.note_resized(changes.resized, &changes.cpu_resized, Timestamp(0));
    env.ledger.touch_cpu(&env.pods, &changes.cpu_resized);
    env.tick();
    assert_eq!((env.value(IDLE), env.value(WEIGHT)), (n(0), n(20)), "it takes a weight");

    env.write(APP_PATH, "cpu.weight", "39");
    let changes = env.pods.update(vec![resized(true)]);
    env.pods.note_resized(changes.resized, &changes.cpu_resized, Timestamp(0));
    env.ledger.touch_cpu(&env.pods, &changes.cpu_resized);
    env.tick();
    assert_eq!(env.value(IDLE), n(1));
    env.ledger.release("a");
    env.apply();
    assert_eq!((env.value(IDLE), env.value(WEIGHT)), (n(0), n(39)));
}

#[test]
fn an_agent_that_is_killed_within_a_resize_leaves_what_the_kubelet_wrote() {
    // Before the agent knows of the resize, when it is asked for, when qosm has made way, when the kubelet has written and qosm has not
    // read it.
    for stage in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let leases = |env: &mut Env| {
            env.lease("a", 1, QUOTA, n(300_000));
            env.lease("a", 1, BURST, n(1_000_000));
        };
        let mut env = Env::on(Versions::V2, Some(open_journal(folder.path())));
        kubelet_writes(&mut env, "100000");
        leases(&mut env);
        env.apply();
        if stage >= 1 {
            ask_for(&mut env, "500m");
        }
        if stage >= 2 {
            env.tick();
        }
        if stage == 3 {
            kubelet_writes(&mut env, "50000");
        }
        let Env { ledger, mut host, .. } = env;
        drop(ledger);
        for target in [POD, APP] {
            host.detach(target);
        }

        let mut env = Env::of(host, Some(open_journal(folder.path())));
        ask_for(&mut env, "500m");
        leases(&mut env);
        env.ledger.settle();
        env.tick();
        let burst = env.value(BURST);
        assert!(
            matches!(burst, Value::Number(usec) if usec <= 50_000),
            "stage {stage}: {burst:?} would refuse the kubelet"
        );
        kubelet_writes(&mut env, "50000");
        env.tick();
        env.ledger.release("a");
        env.apply();
        assert_eq!((env.value(QUOTA), env.value(BURST)), (n(50_000), n(0)), "stage {stage}");
    }
}
