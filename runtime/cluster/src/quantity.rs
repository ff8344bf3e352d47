//! Exact Kubernetes quantities.
//!
//! Existing crates parse quantities as floating point, which rounds and accepts `inf`. A request of `9007199254740993` bytes must
//! stay exactly that, and `0.1Gi` must become 107374183 bytes, not 107374182.

use std::fmt;

use qosm_model::unit::Bytes;

/// Nano-units in one unit: Kubernetes' finest resolution.
const NANO: u128 = 1_000_000_000;
/// Kubernetes' upper bound of quantities, in nano-units.
const MAX: u128 = i64::MAX as u128 * NANO;
/// Maximum length of a text in bytes; longer text is refused unread.
const MAX_LENGTH: usize = 256;

/// A non-negative quantity, exact to a billionth of its unit. As in Kubernetes, finer values are rounded up,
/// and values above 2^63 − 1 are capped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: u128,
}

/// Reads an amount of memory, e.g. `32Gi`, rounded up to whole bytes.
///
/// # Errors
///
/// See [`QuantityError`].
pub fn parse_bytes(text: &str) -> Result<Bytes, QuantityError> {
    Quantity::parse(text).map(|quantity| Bytes(quantity.units()))
}

/// Why text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has no digit before its suffix.
    #[error("it does not begin with a number")]
    Number,
    /// The text after the number is no valid suffix.
    #[error("`{0}` is none of the suffixes n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, and no exponent")]
    Suffix(String),
    /// Resources cannot be negative.
    #[error("it is negative")]
    Negative,
    /// The text is too long.
    #[error("it is longer than {MAX_LENGTH} characters")]
    Long,
}

/// The factor of the digits.
#[derive(Clone, Copy)]
enum Scale {
    /// 10 to this power.
    Ten(i64),
    /// 1024 to this power.
    Kibi(u32),
}

impl Quantity {
    /// The quantity 0.
    pub const ZERO: Self = Self { nanos: 0 };

    /// Reads a quantity in Kubernetes' notation: `100m`, `1.5Gi`, `2e3`, `.5`. White space is refused, and so
    /// is a minus sign, except before a 0.
    ///
    /// # Errors
    ///
    /// See [`QuantityError`].
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.len() > MAX_LENGTH {
            return Err(QuantityError::Long);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Number);
        }
        let scale = scale(suffix).ok_or_else(|| QuantityError::Suffix(suffix.to_owned()))?;
        let nanos = nanos(whole, fraction, scale);
        if negative && nanos > 0 {
            return Err(QuantityError::Negative);
        }
        Ok(Self { nanos })
    }

    /// The quantity in its unit, rounded up: bytes for memory, whole items for most other resources.
    pub fn units(self) -> u64 {
        u64::try_from(self.nanos.div_ceil(NANO)).unwrap_or(u64::MAX)
    }

    /// The quantity in thousandths, rounded up, and capped at 2^64 − 1.
    pub fn millis(self) -> u64 {
        u64::try_from(self.nanos.div_ceil(NANO / 1000)).unwrap_or(u64::MAX)
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The sum, capped at 2^63 − 1.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: (self.nanos + other.nanos).min(MAX) }
    }
}

/// Formats the quantity as an integer in the largest of the units 1, `m`, `u` and `n` that is exact.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nanos {
            nanos if nanos % NANO == 0 => write!(f, "{}", nanos / NANO),
            nanos if nanos % 1_000_000 == 0 => write!(f, "{}m", nanos / 1_000_000),
            nanos if nanos % 1000 == 0 => write!(f, "{}u", nanos / 1000),
            nanos => write!(f, "{nanos}n"),
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()))
}

fn scale(suffix: &str) -> Option<Scale> {
    let scale = match suffix {
        "" => Scale::Ten(0),
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Kibi(1),
        "Mi" => Scale::Kibi(2),
        "Gi" => Scale::Kibi(3),
        "Ti" => Scale::Kibi(4),
        "Pi" => Scale::Kibi(5),
        "Ei" => Scale::Kibi(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // Beyond this exponent the number is rounded or capped, whatever its digits are.
            const FAR: i64 = 10_000;
            let far = if exponent.starts_with('-') { -FAR } else { FAR };
            Scale::Ten(exponent.parse().unwrap_or(far).clamp(-FAR, FAR))
        }
    };
    Some(scale)
}

/// The number in nano-units. Shifts the decimal point within the row of digits: exact, and bounded by the text's length.
fn nanos(whole: &str, fraction: &str, scale: Scale) -> u128 {
    let mut row: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
    let power = match scale {
        Scale::Ten(power) => power,
        Scale::Kibi(times) => {
            for _ in 0..times {
                multiply_by_1024(&mut row);
            }
            0
        }
    };
    let leading = row.iter().take_while(|digit| **digit == 0).count();
    let row = row.get(leading..).unwrap_or_default();
    if row.is_empty() {
        return 0;
    }
    // Lengths are below a few hundred, exponents below FAR: nothing here can overflow.
    let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let length = i64::try_from(row.len()).unwrap_or(i64::MAX);
    let places = length + power + 9 - fraction;
    if places > 28 {
        return MAX;
    }
    let Ok(kept) = usize::try_from(places) else { return 1 };
    let digit = |index: usize| u128::from(row.get(index).copied().unwrap_or(0));
    let value = (0..kept).fold(0, |value, index| value * 10 + digit(index));
    let is_rounded = row.iter().skip(kept).any(|digit| *digit != 0);
    (value + u128::from(is_rounded)).min(MAX)
}

fn multiply_by_1024(row: &mut Vec<u8>) {
    let mut carry = 0u32;
    for digit in row.iter_mut().rev() {
        let product = u32::from(*digit) * 1024 + carry;
        *digit = u8::try_from(product % 10).unwrap_or(0);
        carry = product / 10;
    }
    let mut above = Vec::new();
    while carry > 0 {
        above.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    row.splice(0..0, above.into_iter().rev());
}
