//! Durations in Go's format: `5m`, `1h30m`, `1.5h`, `300s` (`time.ParseDuration`).

/// Maximum numbers of digits before and after the point.
const DIGITS: (usize, usize) = (12, 18);

/// The duration in whole seconds, rounded down; `None` if the text is not a duration.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let is_of_number = |char: char| char.is_ascii_digit() || char == '.';
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|char| !is_of_number(char))?);
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        nanos += amount(number, unit)?;
        rest = after;
    }
    u64::try_from(nanos / 1_000_000_000).ok()
}

/// A number of a unit, in ns.
fn amount(number: &str, unit: &str) -> Option<u128> {
    let factor: u128 = match unit {
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        // With the micro sign or the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1000,
        "ns" => 1,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || whole.len() > DIGITS.0 || fraction.len() > DIGITS.1 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits(whole)? * factor + digits(fraction)? * factor / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, expected) in [
            ("5m", Some(300)),
            ("5m0s", Some(300)),
            ("1h30m", Some(5400)),
            ("300s", Some(300)),
            ("1500ms", Some(1)),
            ("1.5h", Some(5400)),
            ("1.5h5m", Some(5700)),
            (".5m", Some(30)),
            ("2.s", Some(2)),
            ("3000000us500000\u{b5}s", Some(3)),
            ("1999999999ns", Some(1)),
            ("0.999999999999999999s", Some(0)),
            (".s", None),
            ("1.2.3s", None),
            ("1.0000000000000000001s", None),
            ("0", Some(0)),
            ("", None),
            ("5", None),
            ("m", None),
            ("-5m", None),
            ("5 m", None),
            ("5d", None),
            ("99999999999999999999h", None),
            ("999999999999h", Some(3_599_999_999_996_400)),
        ] {
            assert_eq!(seconds(text), expected, "{text:?}");
        }
    }
}
