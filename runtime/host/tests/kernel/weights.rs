//! CPU weights and `cpu.idle` of this machine's kernel.

use std::fs;
use std::io::Write as _;

use qosm_host::{CgroupVersion, Controller, HostError, Support, Wanted};
use qosm_model::knob::{DEFAULT_WEIGHT, IDLE_WEIGHT, Knob, Value};

use super::{CONTAINER, POD, TIER, Tree, want};

/// `None` on kernels before 5.15.
fn tree(name: &str) -> Option<Tree> {
    let mut tree = Tree::new(name);
    if tree.host.support(CONTAINER, Knob::CpuIdle) == Support::Native {
        return Some(tree);
    }
    assert!(std::env::var_os("QOSM_TEST_VM").is_none(), "this VM lacks cpu.idle");
    // Not `println`, which is hidden for a test that passes.
    let _ = writeln!(std::io::stdout(), "not run: {name}, for this kernel has no cpu.idle");
    None
}

fn read(tree: &Tree, knob: Knob) -> String {
    fs::read_to_string(tree.host.file(CONTAINER, knob).unwrap().path).unwrap().trim().to_owned()
}

fn write(tree: &Tree, knob: Knob, text: &str) -> Result<(), std::io::Error> {
    fs::write(tree.host.file(CONTAINER, knob).unwrap().path, text)
}

fn idle() -> [Wanted; 2] {
    [want(CONTAINER, Knob::CpuWeight, 0), want(CONTAINER, Knob::CpuIdle, 1)]
}

#[test]
fn a_weight_reads_back_on_this_kernel() {
    let mut tree = Tree::new("weight");
    assert_eq!(tree.host.read(CONTAINER, Knob::CpuWeight).unwrap(), DEFAULT_WEIGHT);
    for weight in (1..=10_000).step_by(37).chain([2, 99, 101, 10_000]) {
        for target in [TIER, POD, CONTAINER] {
            tree.carry_out(&[want(target, Knob::CpuWeight, weight)]);
        }
        assert_eq!(tree.host.read(CONTAINER, Knob::CpuWeight).unwrap(), Value::Number(weight));
    }
}

#[test]
fn what_the_kubelet_wrote_comes_back_to_the_share() {
    let mut tree = Tree::new("shares");
    let is_v1 = tree.version(Controller::Cpu) == Some(CgroupVersion::V1);
    for before in if is_v1 { ["2", "102", "204", "262144"] } else { ["1", "4", "59", "10000"] } {
        write(&tree, Knob::CpuWeight, before).unwrap();
        let baseline = tree.host.read(CONTAINER, Knob::CpuWeight).unwrap();
        tree.carry_out(&[want(CONTAINER, Knob::CpuWeight, 500)]);
        tree.carry_out(&[Wanted { target: CONTAINER, knob: Knob::CpuWeight, value: baseline }]);
        assert_eq!(read(&tree, Knob::CpuWeight), before);
    }
}

#[test]
fn an_idle_container_gets_its_weight_back() {
    let Some(mut tree) = tree("idle") else { return };
    write(&tree, Knob::CpuWeight, "79").unwrap();
    let baseline = tree.host.read(CONTAINER, Knob::CpuWeight).unwrap();
    let plan = tree.carry_out(&idle());
    assert_eq!(plan.steps.iter().map(|step| step.knob).collect::<Vec<_>>(), [Knob::CpuIdle, Knob::CpuWeight]);
    assert_eq!(read(&tree, Knob::CpuIdle), "1");
    assert_eq!(tree.host.read(CONTAINER, Knob::CpuWeight).unwrap(), IDLE_WEIGHT, "{}", read(&tree, Knob::CpuWeight));
    assert!(tree.host.plan(&idle()).steps.is_empty());

    // The kernel refuses the weight, so the host refuses it before the write.
    assert_eq!(write(&tree, Knob::CpuWeight, "100").unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let plan = tree.host.plan(&[want(CONTAINER, Knob::CpuWeight, 100)]);
    assert!(matches!(plan.refused[0].2, HostError::Idle { .. }), "{plan:?}");

    let back =
        [Wanted { target: CONTAINER, knob: Knob::CpuWeight, value: baseline }, want(CONTAINER, Knob::CpuIdle, 0)];
    tree.carry_out(&back);
    assert_eq!((read(&tree, Knob::CpuIdle).as_str(), read(&tree, Knob::CpuWeight).as_str()), ("0", "79"));
}

#[test]
fn the_kernel_puts_its_own_weight_when_idle_ends() {
    let Some(mut tree) = tree("idle-end") else { return };
    write(&tree, Knob::CpuWeight, "79").unwrap();
    tree.carry_out(&idle());
    write(&tree, Knob::CpuIdle, "0").unwrap();
    assert_eq!(tree.host.read(CONTAINER, Knob::CpuWeight).unwrap(), DEFAULT_WEIGHT);
}

#[test]
fn no_pod_is_made_idle_though_the_kernel_would() {
    let Some(mut tree) = tree("idle-pod") else { return };
    for target in [TIER, POD] {
        let plan = tree.host.plan(&[want(target, Knob::CpuIdle, 1), want(target, Knob::CpuWeight, 0)]);
        assert!(plan.steps.is_empty() && plan.refused.len() == 2, "{plan:?}");
    }
}
