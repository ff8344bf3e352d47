//! Whether group identities (`cpu.bvt_warp_ns` of Alibaba's kernels) can take effect: the node also has a switch for
//! them, and they and core scheduling exclude each other.
//!
//! Source: koordinator `pkg/koordlet/runtimehooks/hooks/groupidentity/bvt.go`.

use qosm_model::knob::{Knob, Value};

use crate::Host;
use crate::error::HostError;
use crate::knob_table;
use crate::knobs::Support;

/// Values of the node-wide knobs that identities need. A kernel may have neither knob, or only the first.
const IN_FORCE: [(Knob, i64); 2] = [(Knob::SchedCore, 0), (Knob::GroupIdentity, 1)];

impl Host {
    /// Whether identities are supported: groups have the file, and each node-wide knob that exists has the needed value
    /// or can be written. Writes nothing.
    pub fn group_identity_support(&self) -> Support {
        let of_groups = self.knob_support(Knob::BvtWarp);
        if of_groups != Support::Native {
            return of_groups;
        }
        let lacking = IN_FORCE.into_iter().find_map(|(knob, needed)| match self.read_node_knob(knob) {
            Err(HostError::Unsupported { .. }) => None,
            Ok(value) if value == Value::Number(needed) => None,
            Ok(value) => match self.node_knob_support(knob_table::row(knob)) {
                Support::Unavailable { why } => Some(format!("{knob} is {value}, not {needed}, and {why}")),
                Support::Native | Support::Emulated { .. } => None,
            },
            Err(other) => Some(other.to_string()),
        });
        lacking.map_or(Support::Native, |why| Support::Unavailable { why })
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::knob::Target;
    use qosm_model::pod::{ContainerId, PodId, Tier};

    use super::*;
    use crate::mounts::CgroupVersion;
    use crate::simulated::{Kernel, Spec, Versions};
    use crate::{Executed, Wanted};

    const BURSTABLE: Target = Target::Tier(Tier::Burstable);
    const POD: Target = Target::Pod(PodId(1));
    const CONTAINER: Target = Target::Container(ContainerId(1));

    fn host(kernel: Kernel, version: CgroupVersion, change: impl FnOnce(&mut Spec)) -> Host {
        let mut spec = Spec { kernel, versions: Versions::all(version), ..Spec::default() };
        change(&mut spec);
        let mut host = Host::simulated(&spec).unwrap();
        for (target, path) in [
            (BURSTABLE, "kubepods/burstable"),
            (POD, "kubepods/burstable/podu1"),
            (CONTAINER, "kubepods/burstable/podu1/c1"),
        ] {
            host.create(path).unwrap();
            host.attach(target, path).unwrap();
        }
        host
    }

    fn alibaba() -> Host {
        host(Kernel::Alibaba, CgroupVersion::V2, |_| {})
    }

    fn switch(host: &mut Host, knob: Knob, value: Option<i64>) {
        host.simulated_mut().unwrap().set_node_knob(knob, value);
    }

    fn want(target: Target, knob: Knob, value: i64) -> Wanted {
        Wanted { target, knob, value: Value::Number(value) }
    }

    /// Writes all values, and returns the writes in order.
    fn carry_out(host: &mut Host, wanted: &[Wanted]) -> Vec<(Target, Knob, Value)> {
        let plan = host.plan(wanted);
        assert!(plan.refused.is_empty() && plan.clamped.is_empty(), "{plan:?}");
        for step in &plan.steps {
            assert_eq!(host.execute(step).unwrap(), Executed::Done(step.to), "{step:?}");
        }
        plan.steps.iter().map(|step| (step.target, step.knob, step.to)).collect()
    }

    #[test]
    fn the_switches_stand_right_before_an_identity_is_set_and_go_back_after_it() {
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            let mut host = host(Kernel::Alibaba, version, |_| {});
            switch(&mut host, Knob::SchedCore, Some(1));
            let on = [
                want(CONTAINER, Knob::BvtWarp, 2),
                want(POD, Knob::BvtWarp, -1),
                want(BURSTABLE, Knob::BvtWarp, 2),
                want(Target::Node, Knob::GroupIdentity, 1),
                want(Target::Node, Knob::SchedCore, 0),
            ];
            let order = [
                (Target::Node, Knob::SchedCore),
                (Target::Node, Knob::GroupIdentity),
                (BURSTABLE, Knob::BvtWarp),
                (POD, Knob::BvtWarp),
                (CONTAINER, Knob::BvtWarp),
            ];
            let written: Vec<_> =
                carry_out(&mut host, &on).into_iter().map(|(target, knob, _)| (target, knob)).collect();
            assert_eq!(written, order, "{version:?}");
            assert_eq!(host.encode(POD, Knob::BvtWarp, Value::Number(-1)), "-1");
            assert_eq!(host.file(POD, Knob::BvtWarp).unwrap().file, "cpu.bvt_warp_ns");

            let off: Vec<_> =
                on.iter().map(|on| want(on.target, on.knob, (on.knob == Knob::SchedCore).into())).collect();
            let written: Vec<_> =
                carry_out(&mut host, &off).into_iter().map(|(target, knob, _)| (target, knob)).collect();
            let order = [
                (BURSTABLE, Knob::BvtWarp),
                (POD, Knob::BvtWarp),
                (CONTAINER, Knob::BvtWarp),
                (Target::Node, Knob::GroupIdentity),
                (Target::Node, Knob::SchedCore),
            ];
            assert_eq!(written, order, "{version:?}");
        }
    }

    #[test]
    fn the_kernel_refuses_one_while_its_switch_is_off_or_core_scheduling_is_on() {
        for (group_identity, sched_core, is_taken) in [
            (None, None, true),
            (Some(1), None, true),
            (Some(1), Some(0), true),
            (Some(0), None, false),
            (None, Some(1), false),
        ] {
            let mut host = alibaba();
            switch(&mut host, Knob::GroupIdentity, group_identity);
            switch(&mut host, Knob::SchedCore, sched_core);
            let plan = host.plan(&[want(POD, Knob::BvtWarp, 2)]);
            assert_eq!(host.execute(&plan.steps[0]).is_ok(), is_taken, "{group_identity:?} {sched_core:?}");
        }
        let mut host = alibaba();
        switch(&mut host, Knob::SchedCore, Some(1));
        let plan = host.plan(&[want(Target::Node, Knob::GroupIdentity, 1)]);
        let error = host.execute(&plan.steps[0]).unwrap_err();
        assert!(matches!(error, HostError::Refused { .. }), "{error}");
    }

    #[test]
    fn a_rank_that_there_is_not_is_refused_and_none_is_taken_for_it() {
        let mut host = alibaba();
        for value in [-2, 3, i64::MAX] {
            let plan = host.plan(&[want(POD, Knob::BvtWarp, value)]);
            let [(_, _, error)] = plan.refused.as_slice() else { panic!("{plan:?}") };
            assert!(error.to_string().contains("-1 to 2"), "{error}");
        }
    }

    #[test]
    fn a_kernel_without_them_is_told_with_what_has_them() {
        for (kernel, missing) in [(Kernel::Mainline, false), (Kernel::Alibaba, true)] {
            let mut host = host(kernel, CgroupVersion::V1, |spec| {
                spec.missing_files.extend(missing.then(|| "cpu.bvt_warp_ns".to_owned()));
            });
            let Support::Unavailable { why } = host.group_identity_support() else { panic!("{kernel:?}") };
            assert!(why.contains("there is no cpu.bvt_warp_ns; needs Alibaba Cloud Linux 2"), "{why}");
            assert!(why.ends_with("containers can have cpu.idle"), "{why}");
            assert!(matches!(host.support(POD, Knob::BvtWarp), Support::Unavailable { .. }));
        }
    }

    #[test]
    fn identities_need_no_switch_where_there_is_none_and_one_that_can_be_written_where_it_is_off() {
        let mut host = alibaba();
        assert_eq!(host.group_identity_support(), Support::Native);
        for (group_identity, sched_core) in [(None, None), (Some(1), Some(0)), (Some(0), Some(1))] {
            switch(&mut host, Knob::GroupIdentity, group_identity);
            switch(&mut host, Knob::SchedCore, sched_core);
            assert_eq!(host.group_identity_support(), Support::Native, "{group_identity:?} {sched_core:?}");
        }
    }
}
