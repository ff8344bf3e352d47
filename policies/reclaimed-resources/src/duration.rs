//! Durations in Go's format: `5m`, `1h30m`, `300s`.

/// The duration in whole seconds, rounded down; `None` if the text is not a duration.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut millis = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|char: char| !char.is_ascii_digit()).filter(|end| (1..=12).contains(end))?;
        let (number, after) = rest.split_at(end);
        let number: u64 = number.parse().ok()?;
        let unit = after.find(|char: char| char.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let factor = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        millis = millis.checked_add(number.checked_mul(factor)?)?;
        rest = after;
    }
    Some(millis / 1000)
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
