//! Files with a line for each block device.

use qosm_model::block_io::DeviceNumber;
use qosm_model::knob::Value;

use crate::knob_table::Line;

/// A device's value in a file. [`Value::Unset`] for a device without a line, or with values that the kernel chose itself.
pub fn value(line: Line, device: DeviceNumber, text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_of = |line: &&str| line.split_ascii_whitespace().next().and_then(|word| word.parse().ok()) == Some(device);
    let Some(found) = lines.find(is_of) else { return Some(Value::Unset) };
    let rest = found.trim_start().split_once(' ').map_or("", |(_, rest)| rest).trim();
    match line {
        Line::Limits => rest.parse().ok().map(Value::IoLimits),
        Line::Weight => rest.parse::<u32>().ok().map(|weight| Value::Number(weight.into())),
        Line::CostQos => {
            let qos: qosm_model::block_io::IoCostQos = rest.parse().ok()?;
            let is_untouched = !qos.is_enabled && qos.latency.is_none();
            Some(if is_untouched { Value::Unset } else { Value::IoCostQos(qos) })
        }
        Line::CostModel if rest.split_ascii_whitespace().any(|word| word == "ctrl=auto") => Some(Value::Unset),
        Line::CostModel => rest.parse().ok().map(Value::IoCostModel),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SDB: DeviceNumber = DeviceNumber { major: 8, minor: 16 };

    fn read(line: Line, text: &str) -> Option<String> {
        value(line, SDB, text.as_bytes()).map(|value| value.to_string())
    }

    #[test]
    fn the_line_of_the_device_counts() {
        let max = "8:0 rbps=1000 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=2000 riops=max wiops=max\n";
        assert_eq!(read(Line::Limits, max).as_deref(), Some("rbps=max wbps=2000 riops=max wiops=max"));
        let weights = "default 100\n8:16 200\n";
        assert_eq!(read(Line::Weight, weights).as_deref(), Some("200"));
        // Lines of a device with a similar number, or no line.
        for (line, text) in [
            (Line::Limits, ""),
            (Line::Limits, "\n"),
            (Line::Limits, "8:160 rbps=1000 wbps=max riops=max wiops=max\n"),
            (Line::Weight, "default 100\n"),
            (
                Line::CostQos,
                "8:16 enable=0 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n",
            ),
            (
                Line::CostModel,
                "8:16 ctrl=auto model=linear rbps=1 rseqiops=1 rrandiops=1 wbps=1 wseqiops=1 wrandiops=1\n",
            ),
        ] {
            assert_eq!(read(line, text).as_deref(), Some("default"), "{text:?}");
        }
        let qos = "8:16 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00";
        assert_eq!(read(Line::CostQos, qos).as_deref(), qos.strip_prefix("8:16 "));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        for (line, text) in [
            (Line::Limits, "8:16 rbps=x"),
            (Line::Weight, "8:16 many"),
            (Line::CostQos, "8:16"),
            (Line::CostModel, "8:16 ctrl=user"),
        ] {
            assert_eq!(read(line, text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            for line in [Line::Limits, Line::Weight, Line::CostQos, Line::CostModel] {
                let _ = value(line, SDB, &text);
            }
        }
    }
}
