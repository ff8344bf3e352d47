//! Knobs of block devices: `{"knob": "io.max", "device": "8:16", "value": {…}, …}`.

use qosm_model::block_io::{DeviceNumber, Hundredths, IoCostModel, IoCostQos, IoLatency, IoLimits};
use qosm_model::knob::{Knob, Value};
use qosm_rego::Number;

use super::shares::read_within;
use super::{Fields, Flawed, shown, whole, wrong};
use crate::convert::block_io::{PERCENT, SPEED, WEIGHTS, in_force};
use crate::rego::error::SettingFlaw;

const LIMITS: &[&str] = &["rbps", "wbps", "riops", "wiops"];
const QOS: &[&str] = &["enable", "rpct", "rlat", "wpct", "wlat", "min", "max"];
const LATENCY: &[&str] = &["rpct", "rlat", "wpct", "wlat", "min", "max"];
const MODEL: &[&str] = &["rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];

impl Fields<'_> {
    /// A kind of knob with its device. A setting must name the device, a remark may.
    pub(super) fn of_device(&self, kind: Knob, needs_device: bool) -> Flawed<Knob> {
        let has_device = self.0.get("device").is_some();
        match (kind.device(), has_device) {
            (None, true) => Err(SettingFlaw::NoDevice { knob: kind.kind_name() }),
            (Some(_), false) if needs_device => Err(SettingFlaw::Missing { field: "device" }),
            (Some(_), true) => Ok(kind.of(self.device()?)),
            (_, false) => Ok(kind),
        }
    }

    fn device(&self) -> Flawed<DeviceNumber> {
        let value = self.field("device")?;
        let device = value.as_str().and_then(|text| text.parse().ok()).filter(|device| *device != DeviceNumber::NONE);
        let expected = "the numbers of a device, as `input.blockDevices` has them, such as `8:16`";
        device.ok_or_else(|| wrong("device", value, expected))
    }

    /// The value of `io.max`, `io.cost.qos` or `io.cost.model`.
    pub(super) fn device_value(&self, knob: Knob) -> Flawed<Value> {
        let value = self.field("value")?;
        let place = || "value".to_owned();
        match knob {
            Knob::IoMax(_) => read_within(place(), value, LIMITS, |fields| fields.limits()).map(Value::IoLimits),
            Knob::IoCostQos(_) => read_within(place(), value, QOS, |fields| fields.qos()).map(Value::IoCostQos),
            Knob::IoCostModel(_) => read_within(place(), value, MODEL, |fields| fields.model()).map(Value::IoCostModel),
            _ => self.number("value", (*WEIGHTS.start()).into(), (*WEIGHTS.end()).into()).map(Value::Number),
        }
    }

    fn limits(&self) -> Flawed<IoLimits> {
        let limit = |name: &'static str| match self.0.get(name) {
            None => Ok(None),
            Some(value) if value.as_str() == Some("max") => Ok(None),
            Some(_) => self.number(name, 2, i64::MAX).map(|limit| Some(limit.unsigned_abs())),
        };
        let limits = in_force(IoLimits {
            read_bps: limit("rbps")?,
            write_bps: limit("wbps")?,
            read_iops: limit("riops")?,
            write_iops: limit("wiops")?,
        });
        if limits.is_unlimited() { Err(SettingFlaw::Unlimited { fields: LIMITS }) } else { Ok(limits) }
    }

    fn qos(&self) -> Flawed<IoCostQos> {
        let enable = self.field("enable")?;
        let is_enabled = match enable.as_bool() {
            Some(is_enabled) => is_enabled,
            None => self.number("enable", 0, 1)? == 1,
        };
        let has_latency = LATENCY.iter().any(|name| self.0.get(name).is_some());
        let latency = if has_latency { Some(self.latency()?) } else { None };
        Ok(IoCostQos { is_enabled, latency })
    }

    fn latency(&self) -> Flawed<IoLatency> {
        let latency = IoLatency {
            read_permyriad: self.percent("rpct", 0, PERCENT)?,
            read_latency: self.micros("rlat")?,
            write_permyriad: self.percent("wpct", 0, PERCENT)?,
            write_latency: self.micros("wlat")?,
            min: self.percent("min", *SPEED.start(), *SPEED.end())?,
            max: self.percent("max", *SPEED.start(), *SPEED.end())?,
        };
        if latency.min > latency.max {
            let expected = format!("at most `max`, {}", latency.max);
            return Err(SettingFlaw::Value { field: "min", found: latency.min.to_string(), expected });
        }
        Ok(latency)
    }

    fn micros(&self, name: &'static str) -> Flawed<u32> {
        self.number(name, 0, u32::MAX.into()).map(|micros| u32::try_from(micros).unwrap_or(u32::MAX))
    }

    /// A percentage with at most two decimals; the bounds are in hundredths.
    fn percent(&self, name: &'static str, least: u32, most: u32) -> Flawed<Hundredths> {
        let value = self.field(name)?;
        let number = value.as_number().ok_or_else(|| wrong(name, value, "a percentage"))?;
        let (least, most) = (Hundredths(least), Hundredths(most));
        let expected = || format!("a percentage within {least} and {most}, with at most two decimals");
        let hundredths = hundredths(number).filter(|own| (least..=most).contains(own));
        hundredths.ok_or_else(|| SettingFlaw::Value {
            field: name,
            found: shown(&number.to_string()),
            expected: expected(),
        })
    }

    fn model(&self) -> Flawed<IoCostModel> {
        let above_0 = |name: &'static str| self.number(name, 1, i64::MAX).map(i64::unsigned_abs);
        Ok(IoCostModel {
            read_bps: above_0("rbps")?,
            read_seq_iops: above_0("rseqiops")?,
            read_rand_iops: above_0("rrandiops")?,
            write_bps: above_0("wbps")?,
            write_seq_iops: above_0("wseqiops")?,
            write_rand_iops: above_0("wrandiops")?,
        })
    }
}

/// A number in hundredths; `None` if it has more than two decimals, is negative or does not fit.
fn hundredths(number: &Number) -> Option<Hundredths> {
    if let Ok(whole) = whole("value", number, 0, u32::MAX.into()) {
        return u32::try_from(whole).ok()?.checked_mul(100).map(Hundredths);
    }
    let hundredths = number.as_f64() * 100.0;
    // A float cannot represent 95.05 exactly, so a number very close to a whole number of hundredths counts as that.
    let nearest = hundredths.round();
    let is_meant = (hundredths - nearest).abs() < 1e-6 && (0.0..=f64::from(u32::MAX)).contains(&nearest);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and within what both hold")]
    is_meant.then_some(Hundredths(nearest as u32))
}

#[cfg(test)]
mod tests {
    use qosm_model::knob::Target;
    use qosm_model::pod::{PodId, Tier};
    use qosm_rego::Value as Rego;

    use super::super::{Declared, read};
    use crate::interface::Interface;

    fn read_one(text: &str) -> Result<Declared, String> {
        let document = Rego::parse(&format!("[{text}]")).map_err(|error| error.to_string())?;
        read(&document, &[Interface::BlockIo, Interface::CpuBandwidth].into(), 10)
            .map(|mut read| read.remove(0))
            .map_err(|rule| rule.to_string())
    }

    /// The target, the knob and the value as in the kernel's file.
    fn held(text: &str) -> Result<(Target, String, String), String> {
        match read_one(text)? {
            Declared::Hold { target, knob, value, .. } => Ok((target, knob.to_string(), value.to_string())),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_knob_of_a_device_is_of_a_cgroup_or_of_the_node() {
        let of = |target, knob: &str, value: &str| Ok((target, knob.to_owned(), value.to_owned()));
        let text = r#"{"knob": "io.max", "device": "8:16", "tier": "besteffort", "value": {"rbps": 1048576, "wiops": 120, "wbps": "max"}, "reason": "x"}"#;
        let line = "rbps=1048576 wbps=max riops=max wiops=120";
        assert_eq!(held(text), of(Target::Tier(Tier::BestEffort), "io.max 8:16", line));
        let text = r#"{"knob": "io.weight", "device": "8:16", "pod": "1", "value": 200, "reason": "x"}"#;
        assert_eq!(held(text), of(Target::Pod(PodId(1)), "io.weight 8:16", "200"));
        let text = r#"{"knob": "io.cost.qos", "device": "8:16", "value": {"enable": true, "rpct": 95.0, "rlat": 3000, "wpct": 95.05, "wlat": 3000, "min": 1, "max": 10000}, "reason": "x"}"#;
        let line = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.05 wlat=3000 min=1.00 max=10000.00";
        assert_eq!(held(text), of(Target::Node, "io.cost.qos 8:16", line));
        let text = r#"{"knob": "io.cost.qos", "device": "8:16", "value": {"enable": 0}, "reason": "x"}"#;
        assert_eq!(held(text), of(Target::Node, "io.cost.qos 8:16", "enable=0 ctrl=auto"));
        let text = r#"{"knob": "io.cost.model", "device": "8:16", "value": {"rbps": 1, "rseqiops": 2, "rrandiops": 3, "wbps": 4, "wseqiops": 5, "wrandiops": 6}, "reason": "x"}"#;
        let line = "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6";
        assert_eq!(held(text), of(Target::Node, "io.cost.model 8:16", line));
    }

    #[test]
    fn a_remark_may_name_a_device() {
        for (text, target, knob) in [
            (r#"{"remark": "io.max", "tier": "kubepods", "reason": "x"}"#, Target::Tier(Tier::Guaranteed), "io.max"),
            (
                r#"{"remark": "io.max", "device": "8:16", "pod": "1", "reason": "x"}"#,
                Target::Pod(PodId(1)),
                "io.max 8:16",
            ),
            (r#"{"remark": "io.cost.qos", "reason": "x"}"#, Target::Node, "io.cost.qos"),
            (r#"{"remark": "io.cost.model", "device": "8:16", "reason": "x"}"#, Target::Node, "io.cost.model 8:16"),
        ] {
            let expected = Declared::Remark { target, knob: knob.to_owned(), reason: "x".to_owned() };
            assert_eq!(read_one(text), Ok(expected));
        }
    }

    #[test]
    fn what_no_device_takes_names_the_field_and_what_to_write() {
        let of_batch = |rest: &str| format!(r#"{{"tier": "besteffort", "reason": "x", {rest}}}"#);
        let of_node = |rest: &str| format!(r#"{{"device": "8:16", "reason": "x", {rest}}}"#);
        let latency = |field: &str| {
            let mut fields =
                vec![("rpct", "95"), ("rlat", "1"), ("wpct", "95"), ("wlat", "1"), ("min", "50"), ("max", "100")];
            let (name, value) = field.split_once(' ').unwrap();
            fields.retain(|(other, _)| *other != name);
            fields.push((name, value));
            let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
            of_node(&format!(r#""knob": "io.cost.qos", "value": {{"enable": true, {}}}"#, fields.join(", ")))
        };
        for (text, part) in [
            (
                of_batch(r#""knob": "io.max", "value": {"rbps": 2}"#),
                "(`io.max` of tier `besteffort`): `device` is missing",
            ),
            (
                of_batch(r#""knob": "io.max", "device": "sdb", "value": {}"#),
                "device: it is `sdb`, and should be the numbers",
            ),
            (of_batch(r#""knob": "io.max", "device": "0:0", "value": {}"#), "device: it is `0:0`, and should be"),
            (
                of_batch(r#""knob": "cpu.quota", "device": "8:16", "value": 1"#),
                "`cpu.quota` is of no device: leave `device` out",
            ),
            (
                of_batch(r#""knob": "io.max", "device": "8:16", "value": 1"#),
                "value: it is no object but of type number",
            ),
            (
                of_batch(r#""knob": "io.max", "device": "8:16", "value": {"bps": 1}"#),
                "value: `bps` is not a field of it",
            ),
            (of_batch(r#""knob": "io.max", "device": "8:16", "value": {"rbps": 1}"#), "value: rbps: 1 is not within 2"),
            (
                of_batch(r#""knob": "io.max", "device": "8:16", "value": {"rbps": 2.5}"#),
                "value: rbps: 2.5 is not a whole",
            ),
            (
                of_batch(r#""knob": "io.max", "device": "8:16", "value": {}"#),
                "value: it limits nothing; give one of `rbps`",
            ),
            (
                of_batch(r#""knob": "io.max", "device": "8:16", "value": {"riops": 4294967295}"#),
                "value: it limits nothing; give one of",
            ),
            (of_batch(r#""knob": "io.weight", "device": "8:16", "value": 0"#), "value: 0 is not within 1 and 10000"),
            (
                of_batch(r#""knob": "io.cost.qos", "device": "8:16", "value": {"enable": true}"#),
                "it names a `tier`, and the knob is the node's own",
            ),
            (
                of_node(r#""knob": "io.cost.qos 8:16", "value": {"enable": true}"#),
                "there is no knob `io.cost.qos 8:16`",
            ),
            (of_node(r#""knob": "io.cost.qos", "value": {"rpct": 95}"#), "value: `enable` is missing"),
            (of_node(r#""knob": "io.cost.qos", "value": {"enable": true, "rpct": 95}"#), "value: `rlat` is missing"),
            (latency("rpct 100.01"), "value: rpct: it is 100.01, and should be a percentage within 0.00 and 100.00"),
            (
                latency("wpct 95.001"),
                "value: wpct: it is 95.001, and should be a percentage within 0.00 and 100.00, with",
            ),
            (latency("min 0.99"), "value: min: it is 0.99, and should be a percentage within 1.00 and 10000.00"),
            (latency("max 10001"), "value: max: it is 10001, and should be a percentage within 1.00 and 10000.00"),
            (latency("min 101"), "value: min: it is 101.00, and should be at most `max`, 100.00"),
            (latency("rlat -1"), "value: rlat: -1 is not within 0 and 4294967295"),
            (latency("rpct \"95\""), "value: rpct: it is `95`, and should be a percentage"),
            (
                of_node(r#""knob": "io.cost.model", "value": {"rbps": 1, "rseqiops": 0}"#),
                "value: rseqiops: 0 is not within 1",
            ),
            (of_node(r#""knob": "io.cost.model", "value": {"rbps": 1}"#), "value: `rseqiops` is missing"),
        ] {
            let error = read_one(&text).unwrap_err();
            assert!(error.contains(part), "{error}\n  should contain {part}");
        }
    }

    #[test]
    fn it_needs_its_grant() {
        let text = r#"[{"knob": "io.weight", "device": "8:16", "pod": "1", "value": 200, "reason": "x"}]"#;
        let error = read(&Rego::parse(text).unwrap(), &[].into(), 10).unwrap_err().to_string();
        assert!(error.contains("it needs the grant `block-io`; add it to `custom.qosm.grants`"), "{error}");
    }
}
