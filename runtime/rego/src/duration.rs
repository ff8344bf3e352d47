//! `time.parse_duration_ns`: Go's durations, plus days, weeks, and years of 365 days.

use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::Operands;
use crate::{Context, Value};

/// A unit and its nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", HOUR),
];

const HOUR: u64 = 3_600_000_000_000;

pub(crate) fn parse_duration_ns(arguments: &[Value], context: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?;
    // A part is parsed as a float and may have up to 300 digits.
    context.work(text.len().saturating_mul(60))?;
    context.charge(text.len().saturating_mul(8))?;
    let nanoseconds = if text.contains(['d', 'w', 'y']) { parse(&in_hours(text)?, text)? } else { parse(text, text)? };
    Ok(Some(Value::from(nanoseconds)))
}

fn invalid(text: &str) -> Fault {
    format!("time: invalid duration {:?}", excerpt(text)).into()
}

/// Go's time.ParseDuration; errors quote the whole text.
fn parse(text: &str, written: &str) -> Result<i64, Fault> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid(written));
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (nanoseconds, after) = segment(rest).ok_or_else(|| invalid(written))?;
        total = total.checked_add(nanoseconds).filter(|total| *total <= 1 << 63).ok_or_else(|| invalid(written))?;
        rest = after;
    }
    match (is_negative, i64::try_from(total)) {
        (true, Ok(total)) => Ok(-total),
        (true, Err(_)) => Ok(i64::MIN),
        (false, Ok(total)) => Ok(total),
        (false, Err(_)) => Err(invalid(written)),
    }
}

/// Parses a part such as `1.5h`; returns its nanoseconds and the rest.
fn segment(text: &str) -> Option<(u64, &str)> {
    let (number, rest) = split(text, |c| c.is_ascii_digit() || c == '.');
    let (unit, rest) = split(rest, |c| !c.is_ascii_digit() && c != '.');
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok().filter(|whole| *whole <= 1 << 63)? };
    let nanoseconds = whole.checked_mul(*scale)?.checked_add(part(fraction, *scale))?;
    Some((nanoseconds, rest)).filter(|(nanoseconds, _)| *nanoseconds <= 1 << 63)
}

/// A fraction of a unit in nanoseconds; digits that do not fit in 63 bits are ignored.
fn part(fraction: &str, scale: u64) -> u64 {
    let (mut digits, mut unit) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        let next = digits.checked_mul(10).and_then(|digits| digits.checked_add(u64::from(digit.wrapping_sub(b'0'))));
        match next {
            Some(next) if digits <= ((1 << 63) - 1) / 10 && next <= 1 << 63 => digits = next,
            _ => break,
        }
        unit *= 10.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "Go computes it so, and a fraction of an hour fits"
    )]
    let nanoseconds = (digits as f64 * (scale as f64 / unit)) as u64;
    nanoseconds
}

/// Converts days, weeks and years to hours; other units stay unchanged.
fn in_hours(text: &str) -> Result<String, Fault> {
    let (sign, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.get(..1).unwrap_or_default(), rest),
        None => ("", text),
    };
    let mut hours = String::from(sign);
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        if number.is_empty() {
            return Err(invalid(text));
        }
        let unit = ["ms", "us", "µs", "ns"].into_iter().find(|unit| after.starts_with(unit));
        let unit = unit.or_else(|| after.get(..1).filter(|unit| unit.bytes().all(|byte| byte.is_ascii_lowercase())));
        let unit = unit.ok_or_else(|| invalid(text))?;
        let in_a_day = match unit {
            "d" => Some(24.0),
            "w" => Some(7.0 * 24.0),
            "y" => Some(365.0 * 24.0),
            _ => None,
        };
        match in_a_day {
            Some(factor) => {
                let number: f64 = number.parse().map_err(|_| invalid(text))?;
                hours.push_str(&format!("{}h", number * factor));
            }
            None => {
                hours.push_str(number);
                hours.push_str(unit);
            }
        }
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    Ok(hours)
}

fn split(text: &str, is_part: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}
