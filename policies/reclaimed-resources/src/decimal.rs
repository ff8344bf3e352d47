//! Decimal ratios and thresholds, without floating point.
//!
//! `0.29` in a label means 29 %. As a double, multiplied by 100, it is 28.999…, which truncates to 28.

use std::fmt;

/// Billionths in one.
const NANO: u64 = 1_000_000_000;
/// Maximum length of a number; longer text is refused.
const MAX_LENGTH: usize = 64;
/// The largest value.
const MAX_UNITS: u64 = 1_000_000_000;

/// A non-negative decimal number, exact to nine digits after the point; further digits are cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal {
    nanos: u64,
}

/// Why text is not a [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// The text is not digits with an optional point and exponent; `NaN` and `inf` are not accepted either.
    NoNumber,
    /// Below 0.
    Negative,
    /// Above 1 000 000 000.
    TooLarge,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "is no decimal number",
            Self::Negative => "is negative",
            Self::TooLarge => "is too large",
        })
    }
}

impl Decimal {
    /// One.
    pub const ONE: Self = Self { nanos: NANO };

    /// The number in hundredths.
    ///
    /// ```
    /// use reclaimed_resources::decimal::Decimal;
    ///
    /// assert_eq!(Decimal::parse("1.25"), Ok(Decimal::hundredths(125)));
    /// ```
    pub const fn hundredths(hundredths: u32) -> Self {
        Self { nanos: hundredths as u64 * (NANO / 100) }
    }

    /// Reads `0.6`, `.5`, `1`, `6e-1`.
    ///
    /// # Errors
    ///
    /// See [`DecimalError`].
    pub fn parse(text: &str) -> Result<Self, DecimalError> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if unsigned.len() > MAX_LENGTH {
            return Err(DecimalError::NoNumber);
        }
        let (number, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse().map_err(|_| DecimalError::NoNumber)?),
            None => (unsigned, 0_i32),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = || whole.bytes().chain(fraction.bytes());
        if digits().next().is_none() || digits().any(|byte| !byte.is_ascii_digit()) {
            return Err(DecimalError::NoNumber);
        }
        if digits().all(|byte| byte == b'0') {
            return Ok(Self::default());
        }
        if is_negative {
            return Err(DecimalError::Negative);
        }
        // The value is 0.d1d2d3… times ten to the power `power`; leading zeros count as digits.
        let power = i64::try_from(whole.len()).unwrap_or(0).saturating_add(exponent.into());
        let kept = power.saturating_add(9);
        let mut nanos = 0_u64;
        let mut digits = digits();
        for _ in 0..kept.clamp(0, 128) {
            let digit = digits.next().map_or(0, |byte| u64::from(byte - b'0'));
            nanos = nanos.checked_mul(10).and_then(|nanos| nanos.checked_add(digit)).ok_or(DecimalError::TooLarge)?;
        }
        if kept > 128 || nanos > MAX_UNITS * NANO {
            return Err(DecimalError::TooLarge);
        }
        Ok(Self { nanos })
    }

    /// The number in percent, rounded down.
    pub fn percent(self) -> u64 {
        self.nanos / (NANO / 100)
    }

    /// `amount` times this number, rounded down and saturating at [`u64::MAX`].
    pub fn times(self, amount: u64) -> u64 {
        u64::try_from(u128::from(amount) * u128::from(self.nanos) / u128::from(NANO)).unwrap_or(u64::MAX)
    }

    /// `amount` divided by this number, rounded up; `amount` itself if this number is 0.
    pub fn divide(self, amount: u64) -> u64 {
        if self.nanos == 0 {
            return amount;
        }
        let exact = (u128::from(amount) * u128::from(NANO)).div_ceil(u128::from(self.nanos));
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    /// Whether `part` is larger than `whole` times this number, without rounding.
    pub fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(NANO) > u128::from(whole) * u128::from(self.nanos)
    }

    /// The absolute difference of two numbers.
    #[must_use]
    pub fn abs_diff(self, other: Self) -> Self {
        Self { nanos: self.nanos.abs_diff(other.nanos) }
    }

    /// The number in billionths, for the saved state.
    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }

    /// The number from billionths.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.nanos / NANO, self.nanos % NANO);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for (text, shown, percent) in [
            ("0.6", "0.6", 60),
            ("0.29", "0.29", 29),
            (".5", "0.5", 50),
            ("1.", "1", 100),
            ("1.25", "1.25", 125),
            ("6e-1", "0.6", 60),
            ("6E-1", "0.6", 60),
            ("0.006e2", "0.6", 60),
            ("+0.7", "0.7", 70),
            ("-0", "0", 0),
            ("-0.0", "0", 0),
            ("0.0000000019", "0.000000001", 0),
            ("0e999999999", "0", 0),
            ("1e-400", "0", 0),
            ("007", "7", 700),
            ("1000000000", "1000000000", 100_000_000_000),
        ] {
            let number = Decimal::parse(text).unwrap();
            assert_eq!((number.to_string().as_str(), number.percent()), (shown, percent), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_says_why() {
        for (text, error) in [
            ("", DecimalError::NoNumber),
            (".", DecimalError::NoNumber),
            ("-", DecimalError::NoNumber),
            ("NaN", DecimalError::NoNumber),
            ("inf", DecimalError::NoNumber),
            ("0x1p-2", DecimalError::NoNumber),
            ("1,5", DecimalError::NoNumber),
            ("1 ", DecimalError::NoNumber),
            ("1e", DecimalError::NoNumber),
            ("--1", DecimalError::NoNumber),
            ("1.2.3", DecimalError::NoNumber),
            ("-0.1", DecimalError::Negative),
            ("-1e-9", DecimalError::Negative),
            ("1e400", DecimalError::TooLarge),
            ("1000000001", DecimalError::TooLarge),
            ("99999999999999999999", DecimalError::TooLarge),
        ] {
            assert_eq!(Decimal::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn comparing_and_scaling_is_exact() {
        let tenth = Decimal::parse("0.1").unwrap();
        assert!(!tenth.is_exceeded(100, 1000));
        assert!(tenth.is_exceeded(101, 1000));
        assert!(!tenth.is_exceeded(0, 0));
        assert!(tenth.is_exceeded(1, 0));
        let ratio = Decimal::hundredths(120);
        assert_eq!((ratio.times(25_000), ratio.times(25_001)), (30_000, 30_001));
        assert_eq!((ratio.divide(120_000), ratio.divide(100_000)), (100_000, 83_334));
        assert_eq!(Decimal::default().divide(7), 7);
        assert_eq!(Decimal::hundredths(110).abs_diff(ratio), Decimal::hundredths(10));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in 0..=MAX_UNITS * NANO) {
            let number = Decimal { nanos };
            prop_assert_eq!(Decimal::parse(&number.to_string()), Ok(number));
        }

        #[test]
        fn any_text_is_read_without_panic(text in "[-+0-9eE.]{0,80}|.{0,20}") {
            let _ = Decimal::parse(&text);
        }
    }
}
