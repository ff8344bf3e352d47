//! Kubernetes quantities in annotations of a node: `"4"`, `"500m"`, `"2Gi"`, also as a JSON number.
//!
//! Kubernetes: `apimachinery/pkg/api/resource`. As in Kubernetes, finer amounts are rounded up and amounts above 2^63 − 1 units are capped.

use std::fmt;

use serde_json::Value;

/// Kubernetes caps quantities at this value.
const MAX_UNITS: u128 = i64::MAX as u128;
/// Maximum length of a quantity; longer text is refused.
const MAX_LENGTH: usize = 256;
/// Number of exact digits after the point; further digits are rounded up into the last one.
const MAX_FRACTION: usize = 15;
/// Ten to the power of [`MAX_FRACTION`].
const FRACTION_UNIT: u128 = 1_000_000_000_000_000;

/// A non-negative quantity, exact to a thousandth of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    millis: u128,
}

/// Why a value is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not begin with a number.
    NoNumber,
    /// The number is followed by an unknown suffix.
    Suffix,
    /// The quantity is negative, which a resource cannot be.
    Negative,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "is no quantity; write a number such as 4, 500m or 2Gi",
            Self::Suffix => {
                "has an unknown suffix; use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or an exponent"
            }
            Self::Negative => "is negative",
        })
    }
}

impl Quantity {
    /// Reads a JSON string or number.
    ///
    /// # Errors
    ///
    /// See [`QuantityError`].
    pub fn read(value: &Value) -> Result<Self, QuantityError> {
        match value {
            // Kubernetes skips blanks around it.
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(QuantityError::NoNumber),
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// See [`QuantityError`].
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.len() > MAX_LENGTH {
            return Err(QuantityError::NoNumber);
        }
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::NoNumber);
        }
        let (power, factor) = scale(suffix).ok_or(QuantityError::Suffix)?;
        let (whole, fraction) = shifted(whole, fraction, power);
        let millis = millis(&whole, &fraction, factor);
        if is_negative && millis > 0 {
            return Err(QuantityError::Negative);
        }
        Ok(Self { millis })
    }

    /// The quantity in its unit, rounded up.
    pub fn units(self) -> u64 {
        u64::try_from(self.millis.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// The quantity in thousandths of its unit, rounded up.
    pub fn millis(self) -> u64 {
        u64::try_from(self.millis).unwrap_or(u64::MAX)
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()))
}

/// The suffix as a power of ten and an additional factor; `None` if it is unknown.
fn scale(suffix: &str) -> Option<(i64, u128)> {
    Some(match suffix {
        "" => (0, 1),
        "n" => (-9, 1),
        "u" => (-6, 1),
        "m" => (-3, 1),
        "k" => (3, 1),
        "M" => (6, 1),
        "G" => (9, 1),
        "T" => (12, 1),
        "P" => (15, 1),
        "E" => (18, 1),
        "Ki" => (0, 1 << 10),
        "Mi" => (0, 1 << 20),
        "Gi" => (0, 1 << 30),
        "Ti" => (0, 1 << 40),
        "Pi" => (0, 1 << 50),
        "Ei" => (0, 1 << 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // With a larger exponent the result is zero or the maximum, whatever the digits are.
            let far = if exponent.starts_with('-') { -600 } else { 600 };
            (exponent.parse().unwrap_or(far).clamp(-600, 600), 1)
        }
    })
}

/// The digits before and after the point, after moving the point `power` places to the right.
fn shifted(whole: &str, fraction: &str, power: i64) -> (String, String) {
    let places = usize::try_from(power.unsigned_abs()).unwrap_or(0);
    if power >= 0 {
        let (moved, rest) = fraction.split_at(places.min(fraction.len()));
        let zeros = "0".repeat(places - moved.len());
        (format!("{whole}{moved}{zeros}"), rest.to_owned())
    } else {
        let (rest, moved) = whole.split_at(whole.len().saturating_sub(places));
        let zeros = "0".repeat(places - moved.len());
        (rest.to_owned(), format!("{zeros}{moved}{fraction}"))
    }
}

fn millis(whole: &str, fraction: &str, factor: u128) -> u128 {
    let whole = whole.trim_start_matches('0');
    if whole.len() > 19 {
        return MAX_UNITS * 1000;
    }
    let number = |digits: &str| digits.bytes().fold(0_u128, |value, byte| value * 10 + u128::from(byte - b'0'));
    let (kept, cut) = fraction.split_at(fraction.len().min(MAX_FRACTION));
    let zeros = u32::try_from(MAX_FRACTION - kept.len()).unwrap_or(0);
    let rest = number(kept) * 10_u128.pow(zeros) + u128::from(cut.bytes().any(|byte| byte != b'0'));
    // Below 2^64 × 2^60 and 2^50 × 2^60 × 2^10: both fit.
    let units = number(whole) * factor;
    if units > MAX_UNITS {
        return MAX_UNITS * 1000;
    }
    let below = (rest * factor * 1000).div_ceil(FRACTION_UNIT);
    (units * 1000 + below).min(MAX_UNITS * 1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_exact() {
        for (text, millis, units) in [
            ("0", 0, 0),
            ("-0", 0, 0),
            ("4", 4000, 4),
            ("500m", 500, 1),
            ("0.5", 500, 1),
            (".5", 500, 1),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("0.1Gi", 107_374_182_400, 107_374_183),
            ("2e3", 2_000_000, 2000),
            ("2E3", 2_000_000, 2000),
            ("25e-1", 2500, 3),
            ("1k", 1_000_000, 1000),
            ("20G", 20_000_000_000_000, 20_000_000_000),
            ("1n", 1, 1),
            ("1e-300", 1, 1),
            ("0.00000000000000000001", 1, 1),
            ("0100m", 100, 1),
            ("9223372036854775807", 9_223_372_036_854_775_807_000, i64::MAX as u64),
            ("1e400", 9_223_372_036_854_775_807_000, i64::MAX as u64),
            ("8Ei", 9_223_372_036_854_775_807_000, i64::MAX as u64),
            ("9007199254740993", 9_007_199_254_740_993_000, 9_007_199_254_740_993),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!((quantity.millis, quantity.units()), (millis, units), "{text}");
        }
        assert_eq!(Quantity::parse("1e30").unwrap().millis(), u64::MAX, "millis that do not fit");
    }

    #[test]
    fn what_is_no_quantity_says_why() {
        for (text, error) in [
            ("", QuantityError::NoNumber),
            ("Gi", QuantityError::NoNumber),
            (".", QuantityError::NoNumber),
            ("inf", QuantityError::NoNumber),
            (" 4", QuantityError::NoNumber),
            ("4 ", QuantityError::Suffix),
            ("4gi", QuantityError::Suffix),
            ("4e", QuantityError::Suffix),
            ("1.2.3", QuantityError::Suffix),
            ("-1m", QuantityError::Negative),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_json_number_is_a_quantity_too() {
        for (json, units) in
            [("4", Ok(4)), ("0.5", Ok(1)), ("\"2Gi\"", Ok(2 << 30)), ("true", Err(QuantityError::NoNumber))]
        {
            let value = serde_json::from_str(json).unwrap();
            assert_eq!(Quantity::read(&value).map(Quantity::units), units, "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[-+0-9eE.numkMGTPi]{0,40}|.{0,20}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn whole_numbers_are_kept(units in 0..=i64::MAX as u64) {
            prop_assert_eq!(Quantity::parse(&units.to_string()).unwrap().units(), units);
        }
    }
}
