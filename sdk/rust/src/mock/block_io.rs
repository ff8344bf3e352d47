//! Settings of block devices, over a [`MockHost`].

use std::collections::BTreeMap;

use super::host::Named;
use super::{IoKnob, IoValue, MockHost};
use crate::{BlockIo, IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLatency, IoLimits, IoVolume, Target};

/// Values held, by target (`None` = the node), kind and device.
pub(super) type HeldIo = BTreeMap<(Option<Target>, IoKnob, IoDevice), IoValue>;

/// 100 % in hundredths of a percent.
const HUNDRED_PERCENT: u32 = 10_000;
/// Range of [`IoLatency`](crate::IoLatency)'s `min` and `max`, in hundredths of a percent of the speed in the model.
const SPEED: std::ops::RangeInclusive<u32> = 100..=1_000_000;

/// A staged change of a setting of a block device.
///
/// ```
/// use qosm_sdk::mock::{IoChange, IoKnob, IoValue, MockHost};
/// use qosm_sdk::{BlockIo, IoDevice, Target};
///
/// let device = IoDevice { major: 8, minor: 16 };
/// let mut host = MockHost::default();
/// host.set_io_weight(Target::Pod(1), device, 200, "asked for");
/// let change = IoChange {
///     target: Some(Target::Pod(1)),
///     knob: IoKnob::Weight,
///     device,
///     value: Some(IoValue::Weight(200)),
///     reason: "asked for".into(),
/// };
/// assert_eq!(host.take_io_changes(), [change]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoChange {
    /// The cgroup; `None` = the node.
    pub target: Option<Target>,
    /// The kind of setting.
    pub knob: IoKnob,
    /// The device.
    pub device: IoDevice,
    /// The value to hold; `None` releases the setting.
    pub value: Option<IoValue>,
    /// The policy's reason; empty for a release.
    pub reason: String,
}

/// A change to the cost model of devices that a policy wanted but did not make.
///
/// ```
/// use qosm_sdk::BlockIo;
/// use qosm_sdk::mock::{IoKnob, IoRemark, MockHost};
///
/// let mut host = MockHost::default();
/// host.remark_io_cost("this kernel has none");
/// let remark = IoRemark { knob: IoKnob::CostQos, device: None, reason: "this kernel has none".into() };
/// assert_eq!(host.io_remarks, [remark]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoRemark {
    /// The kind of setting.
    pub knob: IoKnob,
    /// The device; `None` if the remark is about no particular device. Remarks of a component never name one.
    pub device: Option<IoDevice>,
    /// The policy's reason for not making the change.
    pub reason: String,
}

impl MockHost {
    /// The limits of a cgroup on a device: held now, or from the end of the evaluation on if it succeeds.
    ///
    /// ```
    /// use qosm_sdk::{IoDevice, Target};
    ///
    /// let host = qosm_sdk::mock::MockHost::default();
    /// assert_eq!(host.io_max(Target::Pod(1), IoDevice { major: 8, minor: 16 }), None);
    /// ```
    #[must_use]
    pub fn io_max(&self, target: Target, device: IoDevice) -> Option<IoLimits> {
        match self.io(Some(target), IoKnob::Max, device) {
            Some(IoValue::Limits(limits)) => Some(limits),
            _ => None,
        }
    }

    /// The weight of a cgroup on a device, held or staged.
    ///
    /// ```
    /// use qosm_sdk::{IoDevice, Target};
    ///
    /// let host = qosm_sdk::mock::MockHost::default();
    /// assert_eq!(host.io_weight(Target::Pod(1), IoDevice { major: 8, minor: 16 }), None);
    /// ```
    #[must_use]
    pub fn io_weight(&self, target: Target, device: IoDevice) -> Option<u32> {
        match self.io(Some(target), IoKnob::Weight, device) {
            Some(IoValue::Weight(weight)) => Some(weight),
            _ => None,
        }
    }

    /// The cost model switch and latency targets of a device, held or staged.
    ///
    /// ```
    /// use qosm_sdk::IoDevice;
    ///
    /// let host = qosm_sdk::mock::MockHost::default();
    /// assert_eq!(host.io_cost_qos(IoDevice { major: 8, minor: 16 }), None);
    /// ```
    #[must_use]
    pub fn io_cost_qos(&self, device: IoDevice) -> Option<IoCostQos> {
        match self.io(None, IoKnob::CostQos, device) {
            Some(IoValue::CostQos(qos)) => Some(qos),
            _ => None,
        }
    }

    /// The speed of a device in the cost model, held or staged.
    ///
    /// ```
    /// use qosm_sdk::IoDevice;
    ///
    /// let host = qosm_sdk::mock::MockHost::default();
    /// assert_eq!(host.io_cost_model(IoDevice { major: 8, minor: 16 }), None);
    /// ```
    #[must_use]
    pub fn io_cost_model(&self, device: IoDevice) -> Option<IoCostModel> {
        match self.io(None, IoKnob::CostModel, device) {
            Some(IoValue::CostModel(model)) => Some(model),
            _ => None,
        }
    }

    /// Takes the changes of block device settings since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{BlockIo, IoDevice, Target};
    ///
    /// let mut host = MockHost::default();
    /// host.set_io_weight(Target::Pod(1), IoDevice { major: 8, minor: 16 }, 200, "asked for");
    /// assert_eq!(host.take_io_changes().len(), 1);
    /// assert_eq!(host.take_io_changes(), []);
    /// ```
    pub fn take_io_changes(&mut self) -> Vec<IoChange> {
        self.io_changes_before = 0;
        std::mem::take(&mut self.io_changes)
    }

    fn all_io(&self) -> &HeldIo {
        self.staged_io.as_ref().unwrap_or(&self.held_io)
    }

    fn io(&self, target: Option<Target>, knob: IoKnob, device: IoDevice) -> Option<IoValue> {
        self.all_io().get(&(target, knob, device)).copied()
    }

    fn change_io(&mut self) -> &mut HeldIo {
        self.staged_io.get_or_insert_with(|| self.held_io.clone())
    }

    /// Everything that is held or staged on devices, one line each.
    pub(super) fn io_lines(&self) -> impl Iterator<Item = String> {
        self.all_io().iter().map(|((target, knob, device), value)| {
            let target = target.map_or_else(|| "node".to_owned(), |target| Named(target).to_string());
            format!("{target} {} {device} = {value}", knob.as_str())
        })
    }

    pub(super) fn commit_io(&mut self) {
        if let Some(staged) = self.staged_io.take() {
            self.held_io = staged;
        }
    }

    pub(super) fn discard_io(&mut self) {
        self.staged_io = None;
        self.io_changes.clear();
        self.io_remarks.clear();
    }

    /// Releases what an earlier instance held and this one did not declare.
    pub(super) fn release_undeclared_io(&mut self) {
        let declared = self.io_changes.iter().skip(self.io_changes_before).filter(|change| change.value.is_some());
        let declared: Vec<_> = declared.map(|change| (change.target, change.knob, change.device)).collect();
        let over: Vec<_> = self.all_io().keys().filter(|key| !declared.contains(key)).copied().collect();
        for (target, knob, device) in over {
            self.stage_io(target, knob, device, None, "");
        }
    }

    fn stage_io(
        &mut self,
        target: Option<Target>,
        knob: IoKnob,
        device: IoDevice,
        value: Option<IoValue>,
        reason: &str,
    ) {
        if let Some(target) = target {
            self.require(target);
        }
        if (device.major, device.minor) == (0, 0) {
            self.refuse_io(knob, device, "it is no device; take one of `read-devices`");
        }
        let key = (target, knob, device);
        let is_news = match value {
            Some(value) => {
                self.change_io().insert(key, value);
                true
            }
            None => self.change_io().remove(&key).is_some(),
        };
        if is_news {
            self.io_changes.push(IoChange { target, knob, device, value, reason: reason.into() });
        }
    }

    fn refuse_io(&mut self, knob: IoKnob, device: IoDevice, why: impl AsRef<str>) {
        self.refuse(format!("its `{}` of device {device}: {}", knob.as_str(), why.as_ref()));
    }

    fn check_limits(&mut self, device: IoDevice, limits: IoLimits) {
        let fields = [
            ("read-bps", limits.read_bps),
            ("write-bps", limits.write_bps),
            ("read-iops", limits.read_iops),
            ("write-iops", limits.write_iops),
        ];
        for (field, limit) in fields {
            if let Some(limit) = limit.filter(|limit| *limit < 2) {
                let why = format!("`{field}` is {limit}, and should be at least 2, or none");
                self.refuse_io(IoKnob::Max, device, why);
            }
        }
        if limits == IoLimits::NONE {
            self.refuse_io(IoKnob::Max, device, "it limits nothing; give it up with `release-max`");
        }
    }

    fn check_latency(&mut self, device: IoDevice, latency: IoLatency) {
        let percents = [("read-permyriad", latency.read_permyriad), ("write-permyriad", latency.write_permyriad)];
        for (field, percent) in percents {
            if percent > HUNDRED_PERCENT {
                let why = format!("`{field}` is {percent}, and should be within 0 and {HUNDRED_PERCENT}");
                self.refuse_io(IoKnob::CostQos, device, why);
            }
        }
        for (field, speed) in [("min", latency.min), ("max", latency.max)] {
            if !SPEED.contains(&speed) {
                let why = format!("`{field}` is {speed}, and should be within {} and {}", SPEED.start(), SPEED.end());
                self.refuse_io(IoKnob::CostQos, device, why);
            }
        }
        if latency.min > latency.max {
            let why = format!("`min` is {}, and should be at most `max`, {}", latency.min, latency.max);
            self.refuse_io(IoKnob::CostQos, device, why);
        }
    }

    fn check_model(&mut self, device: IoDevice, model: IoCostModel) {
        let fields = [
            ("read-bps", model.read_bps),
            ("read-seq-iops", model.read_seq_iops),
            ("read-rand-iops", model.read_rand_iops),
            ("write-bps", model.write_bps),
            ("write-seq-iops", model.write_seq_iops),
            ("write-rand-iops", model.write_rand_iops),
        ];
        let most = i64::MAX.unsigned_abs();
        if let Some((field, number)) = fields.into_iter().find(|(_, number)| !(1..=most).contains(number)) {
            let why = format!(
                "`{field}` is {number}, and should be what the device can do, within 1 and {most}; or give it up with `release-cost-model`"
            );
            self.refuse_io(IoKnob::CostModel, device, why);
        }
    }
}

impl BlockIo for MockHost {
    fn block_devices(&mut self) -> Vec<IoDeviceInfo> {
        self.column("block-io", |host| &host.columns.block_devices)
    }

    fn pod_volumes(&mut self) -> Vec<IoVolume> {
        let mut volumes = self.column("block-io", |host| &host.columns.pod_volumes);
        if let Some(given) = &self.given {
            volumes.retain(|volume| given.contains_key(&volume.pod));
        }
        volumes
    }

    fn set_io_max(&mut self, target: Target, device: IoDevice, limits: &IoLimits, reason: &str) {
        self.called("block-io");
        let limits = limits.in_force();
        self.check_limits(device, limits);
        self.stage_io(Some(target), IoKnob::Max, device, Some(IoValue::Limits(limits)), reason);
    }

    fn release_io_max(&mut self, target: Target, device: IoDevice) {
        self.called("block-io");
        self.stage_io(Some(target), IoKnob::Max, device, None, "");
    }

    fn set_io_weight(&mut self, target: Target, device: IoDevice, weight: u32, reason: &str) {
        self.called("block-io");
        if !(1..=10_000).contains(&weight) {
            self.refuse_io(IoKnob::Weight, device, format!("`weight` is {weight}, and should be within 1 and 10000"));
        }
        self.stage_io(Some(target), IoKnob::Weight, device, Some(IoValue::Weight(weight)), reason);
    }

    fn release_io_weight(&mut self, target: Target, device: IoDevice) {
        self.called("block-io");
        self.stage_io(Some(target), IoKnob::Weight, device, None, "");
    }

    fn set_io_cost_qos(&mut self, device: IoDevice, qos: &IoCostQos, reason: &str) {
        self.called("block-io");
        if let Some(latency) = qos.latency {
            self.check_latency(device, latency);
        }
        self.stage_io(None, IoKnob::CostQos, device, Some(IoValue::CostQos(*qos)), reason);
    }

    fn release_io_cost_qos(&mut self, device: IoDevice) {
        self.called("block-io");
        self.stage_io(None, IoKnob::CostQos, device, None, "");
    }

    fn set_io_cost_model(&mut self, device: IoDevice, model: &IoCostModel, reason: &str) {
        self.called("block-io");
        self.check_model(device, *model);
        self.stage_io(None, IoKnob::CostModel, device, Some(IoValue::CostModel(*model)), reason);
    }

    fn release_io_cost_model(&mut self, device: IoDevice) {
        self.called("block-io");
        self.stage_io(None, IoKnob::CostModel, device, None, "");
    }

    fn remark_io_cost(&mut self, reason: &str) {
        self.called("block-io");
        self.io_remarks.push(IoRemark { knob: IoKnob::CostQos, device: None, reason: reason.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CallHooks;
    use crate::mock::pod;
    use crate::{Log, Tier};

    const DISK: IoDevice = IoDevice { major: 8, minor: 16 };
    const BATCH: Target = Target::Tier(Tier::BestEffort);
    const LATENCY: IoLatency = IoLatency {
        read_permyriad: 9_500,
        read_latency_usec: 3_000,
        write_permyriad: 10_000,
        write_latency_usec: 3_000,
        min: 100,
        max: 1_000_000,
    };
    const MODEL: IoCostModel = IoCostModel {
        read_bps: 1,
        read_seq_iops: 2,
        read_rand_iops: 3,
        write_bps: 4,
        write_seq_iops: 5,
        write_rand_iops: 6,
    };

    fn call(act: impl FnOnce(&mut MockHost)) -> Result<(), String> {
        let mut host = MockHost::default();
        host.give(&[pod(1, "default", "web")], &[]);
        host.begin(true);
        act(&mut host);
        host.end(Ok(()))
    }

    fn max(device: IoDevice, limits: IoLimits) -> Result<(), String> {
        call(|host| host.set_io_max(BATCH, device, &limits, "because"))
    }

    fn qos(latency: IoLatency) -> Result<(), String> {
        call(|host| host.set_io_cost_qos(DISK, &IoCostQos { enabled: true, latency: Some(latency) }, "because"))
    }

    #[test]
    fn what_a_host_refuses_is_refused_with_the_field_and_the_way_out() {
        let limited = IoLimits { read_bps: Some(2), ..IoLimits::NONE };
        let most = u64::from(u32::MAX);
        for (refused, why) in [
            (max(IoDevice { major: 0, minor: 0 }, limited), "its `io.max` of device 0:0: it is no device; take one of"),
            (
                max(DISK, IoLimits { write_iops: Some(1), ..limited }),
                "its `io.max` of device 8:16: `write-iops` is 1, and should be at least 2, or none",
            ),
            (max(DISK, IoLimits { read_bps: Some(0), ..limited }), "`read-bps` is 0"),
            (max(DISK, IoLimits::NONE), "it limits nothing; give it up with `release-max`"),
            (max(DISK, IoLimits { read_iops: Some(most), ..IoLimits::NONE }), "it limits nothing"),
            (call(|host| host.set_io_weight(BATCH, DISK, 0, "")), "`weight` is 0, and should be within 1 and 10000"),
            (call(|host| host.set_io_weight(BATCH, DISK, 10_001, "")), "`weight` is 10001"),
            (
                qos(IoLatency { write_permyriad: 10_001, ..LATENCY }),
                "`write-permyriad` is 10001, and should be within 0",
            ),
            (qos(IoLatency { min: 99, ..LATENCY }), "`min` is 99, and should be within 100 and 1000000"),
            (qos(IoLatency { max: 1_000_001, ..LATENCY }), "`max` is 1000001"),
            (qos(IoLatency { min: 300, max: 200, ..LATENCY }), "`min` is 300, and should be at most `max`, 200"),
            (
                call(|host| host.set_io_cost_model(DISK, &IoCostModel { write_bps: 0, ..MODEL }, "")),
                "its `io.cost.model` of device 8:16: `write-bps` is 0, and should be what the device can do",
            ),
            (call(|host| host.set_io_weight(Target::Pod(2), DISK, 1, "")), "it names pod 2, which it was not given"),
            (call(|host| host.remark(BATCH, "io.cost.qos", "")), "it makes a remark on `io.cost.qos`"),
            (call(|host| host.remark(BATCH, "io.max sdb", "")), "it makes a remark on `io.max sdb`"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.contains(why), "{error}\n  should contain {why}");
        }
        assert_eq!(max(DISK, limited), Ok(()));
        assert_eq!(max(DISK, IoLimits { read_iops: Some(most - 1), ..IoLimits::NONE }), Ok(()));
        assert_eq!(qos(LATENCY), Ok(()));
        for knob in ["io.max", "io.weight", "io.max 8:16", "io.weight 259:0"] {
            assert_eq!(call(|host| host.remark(BATCH, knob, "not now")), Ok(()), "{knob}");
        }
    }

    #[test]
    fn a_device_is_held_apart_from_others_and_discarded_with_the_call() {
        let other = IoDevice { major: 8, minor: 32 };
        let mut host = MockHost::default();
        host.set_io_weight(BATCH, DISK, 50, "because");
        host.commit();
        host.set_io_weight(BATCH, other, 60, "because");
        host.release_io_weight(BATCH, DISK);
        assert_eq!((host.io_weight(BATCH, DISK), host.io_weight(BATCH, other)), (None, Some(60)));
        host.discard();
        assert_eq!((host.io_weight(BATCH, DISK), host.io_weight(BATCH, other)), (Some(50), None));
        host.release_io_weight(BATCH, other);
        assert_eq!(host.take_io_changes(), [], "what is not held is not given up");
    }

    #[test]
    fn volumes_are_those_of_known_pods_and_columns_those_of_evaluations() {
        let mut host = MockHost::default();
        host.give(&[pod(1, "default", "web")], &[]);
        let volume = |pod| IoVolume { pod, name: "pvc-1".into(), device: DISK };
        host.columns.pod_volumes = vec![volume(1), volume(2)];
        host.begin(false);
        assert_eq!(host.pod_volumes(), []);
        host.begin(true);
        assert_eq!(host.pod_volumes(), [volume(1)]);
    }

    #[test]
    fn what_an_earlier_instance_held_is_given_up_unless_it_is_declared() {
        let mut host = MockHost::default();
        host.set_io_weight(BATCH, DISK, 50, "because");
        host.set_io_cost_model(DISK, &MODEL, "because");
        host.commit();
        host.begin(true);
        host.set_io_weight(BATCH, DISK, 50, "because");
        host.release_undeclared();
        host.commit();
        assert_eq!(host.to_string(), "tier besteffort io.weight 8:16 = 50");
    }
}
