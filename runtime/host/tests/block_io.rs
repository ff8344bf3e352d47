//! Limits, weights and costs of block devices on the simulated kernel: the writes, their order among cgroups, refusals,
//! and the values that remain when a knob is restored.
#![expect(clippy::unwrap_used, reason = "tests")]

use qosm_host::simulated::{Spec, Versions};
use qosm_host::{Executed, Host, HostError, Support, Wanted};
use qosm_model::block_io::{BlockDevice, DeviceNumber, Hundredths, IoCostModel, IoCostQos, IoLatency, IoLimits};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{PodId, Tier};

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
const SDB: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
const BATCH: Target = Target::Tier(Tier::BestEffort);
const POD: Target = Target::Pod(PodId(1));

fn disk(number: DeviceNumber, name: &str) -> BlockDevice {
    BlockDevice { number, names: vec![name.to_owned()], partitions: Vec::new(), volume_groups: Vec::new() }
}

fn host_on(versions: Versions) -> Host {
    let spec = Spec { versions, devices: vec![disk(SDA, "sda"), disk(SDB, "sdb")], ..Spec::default() };
    let mut host = Host::simulated(&spec).unwrap();
    host.create("kubepods/besteffort/podu1").unwrap();
    host.attach(BATCH, "kubepods/besteffort").unwrap();
    host.attach(POD, "kubepods/besteffort/podu1").unwrap();
    host.simulated_mut().unwrap().record_writes();
    host
}

fn host() -> Host {
    host_on(Versions::V2)
}

fn limits(read_bps: u64) -> Value {
    Value::IoLimits(IoLimits { read_bps: Some(read_bps), ..IoLimits::default() })
}

/// Plans and executes; returns the writes as `path/file text`.
fn apply(host: &mut Host, wanted: &[(Target, Knob, Value)]) -> Vec<String> {
    let wanted: Vec<_> = wanted.iter().map(|&(target, knob, value)| Wanted { target, knob, value }).collect();
    let plan = host.plan(&wanted);
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    for step in &plan.steps {
        assert_eq!(host.execute(step).unwrap(), Executed::Done(step.to), "{step:?}");
    }
    let writes = host.simulated_mut().unwrap().take_writes();
    writes.iter().map(|write| format!("{}/{} {}", write.path, write.file, write.text)).collect()
}

#[test]
fn each_device_has_limits_of_its_own_in_one_file() {
    let mut host = host();
    let written =
        apply(&mut host, &[(BATCH, Knob::IoMax(SDA), limits(1 << 20)), (BATCH, Knob::IoMax(SDB), limits(2 << 20))]);
    assert_eq!(
        written,
        [
            "kubepods/besteffort/io.max 8:0 rbps=1048576 wbps=max riops=max wiops=max",
            "kubepods/besteffort/io.max 8:16 rbps=2097152 wbps=max riops=max wiops=max"
        ]
    );
    assert_eq!(host.read(BATCH, Knob::IoMax(SDB)).unwrap(), limits(2 << 20));
    // Restoring one device leaves the other's limits.
    let written = apply(&mut host, &[(BATCH, Knob::IoMax(SDA), Value::Unset)]);
    assert_eq!(written, ["kubepods/besteffort/io.max 8:0 rbps=max wbps=max riops=max wiops=max"]);
    assert_eq!(host.read(BATCH, Knob::IoMax(SDA)).unwrap(), Value::Unset);
    assert_eq!(host.read(BATCH, Knob::IoMax(SDB)).unwrap(), limits(2 << 20));
    assert_eq!(apply(&mut host, &[(BATCH, Knob::IoMax(SDB), limits(2 << 20))]), [] as [&str; 0], "it is in force");
}

#[test]
fn weights_and_costs_are_written_and_go_back_to_the_kernels_own() {
    let mut host = host();
    let latency = IoLatency {
        read_permyriad: Hundredths(9500),
        read_latency: 3000,
        write_permyriad: Hundredths(9500),
        write_latency: 3000,
        min: Hundredths(100),
        max: Hundredths(1_000_000),
    };
    let qos = Value::IoCostQos(IoCostQos { is_enabled: true, latency: Some(latency) });
    let model = Value::IoCostModel(IoCostModel {
        read_bps: 1 << 30,
        read_seq_iops: 90_000,
        read_rand_iops: 80_000,
        write_bps: 1 << 29,
        write_seq_iops: 70_000,
        write_rand_iops: 60_000,
    });
    let knobs = [
        (POD, Knob::IoWeight(SDA), Value::Number(20)),
        (Target::Node, Knob::IoCostQos(SDA), qos),
        (Target::Node, Knob::IoCostModel(SDA), model),
    ];
    let written = apply(&mut host, &knobs);
    assert_eq!(
        written,
        [
            "/io.cost.qos 8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00",
            "/io.cost.model 8:0 ctrl=user model=linear rbps=1073741824 rseqiops=90000 rrandiops=80000 wbps=536870912 wseqiops=70000 wrandiops=60000",
            "kubepods/besteffort/podu1/io.weight 8:0 20"
        ]
    );
    let written = apply(&mut host, &knobs.map(|(target, knob, _)| (target, knob, Value::Unset)));
    assert_eq!(
        written,
        [
            "/io.cost.qos 8:0 enable=0 ctrl=auto",
            "/io.cost.model 8:0 ctrl=auto",
            "kubepods/besteffort/podu1/io.weight 8:0 default"
        ]
    );
    for (target, knob, _) in knobs {
        assert_eq!(host.read(target, knob).unwrap(), Value::Unset, "{knob}");
    }
}

#[test]
fn what_somebody_else_says_of_a_device_is_read_and_comes_back() {
    let mut host = host();
    let theirs = "8:16 rbps=max wbps=4096 riops=max wiops=50\n";
    host.simulated_mut().unwrap().set_file("kubepods/besteffort/podu1", "io.max", theirs.trim()).unwrap();
    let before = host.read(POD, Knob::IoMax(SDB)).unwrap();
    assert_eq!(before.to_string(), "rbps=max wbps=4096 riops=max wiops=50");
    apply(&mut host, &[(POD, Knob::IoMax(SDB), limits(1 << 20))]);
    assert_eq!(host.read(POD, Knob::IoMax(SDB)).unwrap(), limits(1 << 20), "all four are the holder's");
    apply(&mut host, &[(POD, Knob::IoMax(SDB), before)]);
    assert_eq!(host.simulated_mut().unwrap().read_file("kubepods/besteffort/podu1", "io.max").unwrap(), theirs);
}

#[test]
fn what_the_kernel_would_refuse_is_refused_by_name_and_the_rest_goes_on() {
    let mut host = host();
    let gone = DeviceNumber { major: 9, minor: 1 };
    let wanted = [
        (BATCH, Knob::IoMax(gone), limits(1 << 20)),
        (BATCH, Knob::IoMax(SDA), limits(1)),
        (BATCH, Knob::IoWeight(SDA), Value::Number(0)),
        (BATCH, Knob::IoCostQos(SDA), Value::IoCostQos(IoCostQos { is_enabled: true, latency: None })),
        (BATCH, Knob::IoMax(SDB), limits(1 << 20)),
    ]
    .map(|(target, knob, value)| Wanted { target, knob, value });
    let plan = host.plan(&wanted);
    assert_eq!(plan.steps.iter().map(|step| step.knob).collect::<Vec<_>>(), [Knob::IoMax(SDB)]);
    let refused: Vec<_> = plan.refused.iter().map(|(_, _, error)| error.to_string()).collect();
    assert_eq!(
        refused,
        [
            "io.max 9:1 in /sys/fs/cgroup/kubepods/besteffort/io.max was not written: the node has no device 9:1; `lsblk` lists those that \
             it has",
            "rbps=1 wbps=max riops=max wiops=max is out of range for io.max 8:0 in /sys/fs/cgroup/kubepods/besteffort/io.max: use limits of \
             2 and more, or max",
            "0 is out of range for io.weight 8:0 in /sys/fs/cgroup/kubepods/besteffort/io.weight: use 1 to 10000",
            "io.cost.qos is not supported: there is none on the level of a tier"
        ]
    );
}

#[test]
fn a_device_that_is_pulled_out_leaves_nothing_to_be_put_back() {
    let mut host = host();
    apply(&mut host, &[(POD, Knob::IoMax(SDB), limits(1 << 20))]);
    host.simulated_mut().unwrap().set_devices(&[disk(SDA, "sda")]);
    assert_eq!(host.read(POD, Knob::IoMax(SDB)).unwrap(), Value::Unset);
    let back = Wanted { target: POD, knob: Knob::IoMax(SDB), value: limits(4096) };
    let plan = host.plan_with_baselines(&[back], &[(POD, Knob::IoMax(SDB))].into());
    assert!(plan.steps.is_empty() && plan.refused.is_empty(), "{plan:?}");
    let plan = host.plan(&[back]);
    assert!(matches!(&plan.refused[..], [(POD, _, HostError::NoDevice { .. })]), "{plan:?}");
}

#[test]
fn cgroup_v1_and_a_kernel_without_the_files_have_none_and_say_what_would() {
    let mut host = host_on(Versions::V1);
    let Support::Unavailable { why } = host.support(BATCH, Knob::IoMax(SDA)) else { panic!("v1 has it") };
    assert!(why.contains("needs cgroup v2 with the controller io"), "{why}");
    let Support::Unavailable { why } = host.support(Target::Node, Knob::IoCostQos(SDA)) else { panic!("v1 has it") };
    assert!(why.contains("CONFIG_BLK_CGROUP_IOCOST"), "{why}");
    let mut host = self::host();
    assert_eq!(host.support(BATCH, Knob::IoMax(SDA)), Support::Native);
    assert_eq!(host.support(Target::Node, Knob::IoCostModel(SDA)), Support::Native);
    assert_eq!(host.simulated_mut().unwrap().take_writes(), [], "nothing is written to find out");
}
