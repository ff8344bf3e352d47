//! Block devices in case files: the devices, the volumes on them, and the expected settings.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::expectation::{Expectation, Expected};
use super::node_knobs::NODE;
use crate::mock::{IoChange, IoKnob, IoRemark, IoValue, Value};
use crate::{IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLatency, IoLimits, Target};

/// A block device of the node in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a disk with a volume group
///     ticks:
///       - blockDevices: [{device: '8:16', names: [sdb], partitions: [sdb1], volumeGroups: [data]}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].block_devices.as_ref().map(|rows| rows[0].names[0].as_str()), Some("sdb"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockDeviceRow {
    /// The device's numbers, e.g. `8:16`.
    pub device: String,
    /// Names below `/dev`.
    #[serde(default)]
    pub names: Vec<String>,
    /// Names of its partitions below `/dev`.
    #[serde(default)]
    pub partitions: Vec<String>,
    /// LVM volume groups with data on the device.
    #[serde(default)]
    pub volume_groups: Vec<String>,
}

/// A volume of a pod on a block device.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a volume of its own disk
///     pods: [{name: shop/web, containers: [{name: app}]}]
///     ticks:
///       - podVolumes: [{pod: shop/web, name: pvc-1, device: '8:16'}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].pod_volumes.as_ref().map(|rows| rows[0].name.as_str()), Some("pvc-1"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodVolumeRow {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// Name of the volume's directory at the kubelet.
    pub name: String,
    /// Numbers of the disk that holds the volume, e.g. `8:16`.
    pub device: String,
}

/// Target (`None` = the node), kind and device of a setting.
type Key = (Option<Target>, IoKnob, IoDevice);

/// The node's devices, and what the policy holds on them.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockIo {
    pub(super) devices: Vec<IoDeviceInfo>,
    pub(super) volumes: Vec<(PodVolumeRow, IoDevice)>,
    held: BTreeMap<Key, IoValue>,
}

impl BlockIo {
    /// Takes the devices of a case file.
    pub(super) fn take_devices(&mut self, rows: &[BlockDeviceRow]) -> Result<(), String> {
        let info = |row: &BlockDeviceRow| {
            Ok(IoDeviceInfo {
                device: row.device.parse()?,
                names: row.names.clone(),
                partitions: row.partitions.clone(),
                volume_groups: row.volume_groups.clone(),
            })
        };
        self.devices = rows.iter().map(info).collect::<Result<_, String>>()?;
        Ok(())
    }

    /// Takes the volumes of a case file.
    pub(super) fn take_volumes(&mut self, rows: &[PodVolumeRow]) -> Result<(), String> {
        let volume = |row: &PodVolumeRow| Ok((row.clone(), row.device.parse()?));
        self.volumes = rows.iter().map(volume).collect::<Result<_, String>>()?;
        Ok(())
    }

    pub(super) fn change(&mut self, change: &IoChange) {
        let key = (change.target, change.knob, change.device);
        match change.value {
            Some(value) => self.held.insert(key, value),
            None => self.held.remove(&key),
        };
    }

    /// Drops the settings of targets that are gone.
    pub(super) fn retain(&mut self, exists: impl Fn(Target) -> bool) {
        self.held.retain(|(target, ..), _| target.is_none_or(&exists));
    }

    /// Settings that changed, except those of vanished targets, which the policy did not release itself.
    pub(super) fn since(
        &self,
        before: &Self,
        exists: impl Fn(Target) -> bool,
        name: impl Fn(Target) -> String,
    ) -> Vec<Expectation> {
        let expectation = |(target, knob, device): &Key, value| Expectation {
            target: target.map_or_else(|| NODE.into(), &name),
            knob: format!("{} {device}", knob.as_str()),
            value,
        };
        let taken = self.held.iter().filter(|(key, value)| before.held.get(key) != Some(value));
        let taken = taken.map(|(key, value)| expectation(key, expected(*value)));
        let given_up = before.held.keys().filter(|key| !self.held.contains_key(key) && key.0.is_none_or(&exists));
        let given_up = given_up.map(|key| expectation(key, Expected::Released));
        taken.chain(given_up).collect()
    }
}

/// The knob of a remark, as expectations name it.
pub(super) fn remarked(remark: &IoRemark) -> String {
    match remark.device {
        Some(device) => format!("{} {device}", remark.knob.as_str()),
        None => remark.knob.as_str().to_owned(),
    }
}

fn expected(value: IoValue) -> Expected {
    match value {
        IoValue::Weight(weight) => Expected::Held(Value::Number(weight.into())),
        IoValue::Limits(_) | IoValue::CostQos(_) | IoValue::CostModel(_) => Expected::Io(value),
    }
}

/// Parses a line of `io.max`, `io.cost.qos` or `io.cost.model`, without the device.
pub(super) fn line(text: &str) -> Option<IoValue> {
    let words = Words(text);
    let limits = || words.limits().map(IoValue::Limits);
    let qos = || words.qos().map(IoValue::CostQos);
    let model = || words.model().map(IoValue::CostModel);
    limits().or_else(qos).or_else(model)
}

/// A line of `NAME=VALUE` words.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
    }

    fn limit(&self, name: &str) -> Option<Option<u64>> {
        match self.get(name)? {
            "max" => Some(None),
            _ => Some(Some(self.number(name)?)),
        }
    }

    /// Parses a percentage to hundredths: `95`, `95.5`, `95.05`.
    fn percent(&self, name: &str) -> Option<u32> {
        let text = self.get(name)?;
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(rest) || rest.len() > 2 {
            return None;
        }
        let hundredths = format!("{rest:0<2}").parse::<u32>().ok()?;
        whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)
    }

    fn limits(&self) -> Option<IoLimits> {
        Some(IoLimits {
            read_bps: self.limit("rbps")?,
            write_bps: self.limit("wbps")?,
            read_iops: self.limit("riops")?,
            write_iops: self.limit("wiops")?,
        })
    }

    fn qos(&self) -> Option<IoCostQos> {
        let enabled = match self.get("enable")? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let latency = match self.get("ctrl")? {
            "auto" => None,
            "user" => Some(IoLatency {
                read_permyriad: self.percent("rpct")?,
                read_latency_usec: self.number("rlat")?,
                write_permyriad: self.percent("wpct")?,
                write_latency_usec: self.number("wlat")?,
                min: self.percent("min")?,
                max: self.percent("max")?,
            }),
            _ => return None,
        };
        Some(IoCostQos { enabled, latency })
    }

    fn model(&self) -> Option<IoCostModel> {
        if (self.get("ctrl"), self.get("model")) != (Some("user"), Some("linear")) {
            return None;
        }
        Some(IoCostModel {
            read_bps: self.number("rbps")?,
            read_seq_iops: self.number("rseqiops")?,
            read_rand_iops: self.number("rrandiops")?,
            write_bps: self.number("wbps")?,
            write_seq_iops: self.number("wseqiops")?,
            write_rand_iops: self.number("wrandiops")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, CaseError, Native, run_case};
    use crate::{Description, Host, NoConfig, Pod, PodId, Pods, Policy, Rejection, Tick, Tier};

    #[test]
    fn lines_read_back() {
        for text in [
            "rbps=1048576 wbps=max riops=max wiops=120",
            "enable=0 ctrl=auto",
            "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.05 wlat=3000 min=1.00 max=10000.00",
            "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6",
        ] {
            assert_eq!(line(text).map(|value| value.to_string()).as_deref(), Some(text));
        }
        let short = "enable=1 ctrl=user rpct=95 rlat=3000 wpct=95.5 wlat=3000 min=1 max=10000";
        let Some(IoValue::CostQos(IoCostQos { latency: Some(latency), .. })) = line(short) else { panic!() };
        assert_eq!((latency.read_permyriad, latency.write_permyriad, latency.min), (9_500, 9_550, 100));
        for text in ["", "max", "rbps=1", "rbps=-1 wbps=max riops=max wiops=max", "enable=2 ctrl=auto", "enable=1"] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    /// Limits batch pods on the disks with volumes of other pods, and enables the cost model where configured.
    #[derive(Default)]
    struct Quiet {
        pods: Pods<NoConfig>,
        limits: bool,
    }

    #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
    struct Config {
        #[serde(default)]
        limits: bool,
    }

    impl Policy for Quiet {
        type Config = Config;
        type PodConfig = NoConfig;

        fn describe() -> Description {
            Description::new("quiet", "0.1.0", "For these tests.")
        }

        fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
            self.limits = config.limits;
            Ok(())
        }

        fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
            self.pods.update(upserted, removed);
            Vec::new()
        }

        fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
            let batch = Target::Tier(Tier::BestEffort);
            if !self.limits {
                host.remark(batch, "io.max 8:16", "not configured");
                host.remark_io_cost("not configured");
                return Ok(());
            }
            for volume in host.pod_volumes() {
                let limits = IoLimits { read_bps: Some(1 << 20), write_iops: Some(120), ..IoLimits::NONE };
                host.set_io_max(batch, volume.device, &limits, "others have a volume there");
                host.set_io_weight(Target::Pod(volume.pod), volume.device, 200, "its own volume");
            }
            for disk in host.block_devices() {
                host.set_io_cost_qos(disk.device, &IoCostQos { enabled: true, latency: None }, "weights are to count");
            }
            Ok(())
        }
    }

    fn play(case: &str) -> Result<(), CaseError> {
        run_case(&Case::parse(case)?, &mut Native::<Quiet>::default())
    }

    #[test]
    fn devices_stay_and_settings_of_them_are_expected() {
        play(
            "
            about: limits come with a volume, and go with the configuration
            config: {limits: true}
            pods: [{name: shop/web, containers: [{name: app}]}]
            ticks:
              - blockDevices: [{device: '8:16', names: [sdb], partitions: [sdb1], volumeGroups: [data]}]
                podVolumes: [{pod: shop/web, name: pvc-1, device: '8:16'}]
                expect:
                  - {target: tier besteffort, knob: 'io.max 8:16', value: rbps=1048576 wbps=max riops=max wiops=120}
                  - {target: pod shop/web, knob: 'io.weight 8:16', value: 200}
                  - {target: node, knob: 'io.cost.qos 8:16', value: enable=1 ctrl=auto}
                remarks: []
              - {}
              - cause: podsChanged
                remove: [shop/web]
                expect: [{target: tier besteffort, knob: 'io.max 8:16', value: released}]
              - configure: {limits: false}
                expect: [{target: node, knob: 'io.cost.qos 8:16', value: released}]
                remarks:
                  - {target: tier besteffort, knob: 'io.max 8:16'}
                  - {target: node, knob: io.cost.qos, reason: not configured}
            ",
        )
        .unwrap();
    }

    #[test]
    fn what_a_case_cannot_mean_is_said() {
        for (tick, why) in [
            ("blockDevices: [{device: sdb}]", "`sdb` are no numbers of a device"),
            ("podVolumes: [{pod: shop/db, name: x, device: '8:16'}]", "there is no pod `shop/db`"),
            ("podVolumes: [{pod: shop/web, name: x, device: '8'}]", "`8` are no numbers of a device"),
        ] {
            let case = format!("about: x\npods: [{{name: shop/web}}]\nticks:\n  - {tick}\n");
            let error = play(&case).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = Case::parse("about: x\nticks: [{expect: [{target: node, knob: x, value: rbps=1}]}]").unwrap_err();
        assert!(error.to_string().contains("a line of a device such as"), "{error}");
    }
}
