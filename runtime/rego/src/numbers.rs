//! `numbers.range_step`, `units.parse` and `units.parse_bytes`.

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::{Operands, too_many};
use crate::table::{Entry, host};
use crate::{Context, Number, Value, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[
    host("numbers.range_step", 3, range_step),
    host("units.parse", 1, parse_units),
    host("units.parse_bytes", 1, parse_bytes),
];

const KILO: u64 = 1_000;
const KIBI: u64 = 1_024;

/// `0.001` as the float by which OPA multiplies: a numerator, and the exponent of a denominator that is a power of two.
const MILLI: (u64, u32) = (1_152_921_504_606_847, 60);

fn range_step(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    // Parsing a number takes time quadratic in its digits.
    context.work(limit::DIGITS.saturating_mul(limit::DIGITS / 16))?;
    let whole = |position: usize| {
        operands.number(position)?.to_big_int().ok_or_else(|| {
            let position = position.saturating_add(1);
            Fault::from(format!("operand {position} must be integer number but got floating-point number"))
        })
    };
    let (from, to, step) = (whole(0)?, whole(1)?, whole(2)?);
    if !step.is_positive() {
        return Err("step must be a positive integer".into());
    }
    let steps =
        ((&to - &from).abs() / &step).to_usize().filter(|steps| *steps < limit::ELEMENTS).ok_or_else(too_many)?;
    let step = if from > to { -step } else { step };
    let mut numbers = Vec::with_capacity(steps.saturating_add(1));
    let mut number = from;
    context.charge(steps.saturating_add(1).saturating_mul(weight::ELEMENT))?;
    for _ in 0..=steps {
        let digits = usize::try_from(number.bits() / 3).unwrap_or(usize::MAX).saturating_add(1);
        if digits > I64_DIGITS {
            context.charge(digits.saturating_add(weight::TEXT))?;
            context.work(written_work(digits))?;
        }
        context.work(20)?;
        numbers.push(Value::Number(written(&number)?));
        number += &step;
    }
    Ok(Some(Value::Array(numbers)))
}

/// Maximum number of digits of a 64-bit integer.
const I64_DIGITS: usize = 20;

/// Work of writing this many digits, which is quadratic.
fn written_work(digits: usize) -> usize {
    digits.saturating_mul(digits / 64 + 16)
}

fn written(number: &BigInt) -> Result<Number, Fault> {
    match number.to_i64() {
        Some(number) => Ok(number.into()),
        None => Number::parse(&number.to_string()).ok_or_else(|| "the number has too many digits".into()),
    }
}

/// Parses a quantity of Kubernetes or SI, such as `10M`, `200Mi`, `50m`, exactly.
fn parse_units(arguments: &[Value], context: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?.replace('"', "");
    let (amount, unit) = split(&text)?;
    // The first letter distinguishes `m` from `M`.
    let unit = match unit.split_at_checked(1) {
        Some((first, rest)) => format!("{first}{}", rest.to_lowercase()),
        None => unit.to_owned(),
    };
    let amount = Decimal::read(amount).ok_or("could not parse amount to a number")?;
    context.work(amount.work())?;
    let (factor, halvings) = match unit.as_str() {
        "m" => (BigUint::from(MILLI.0), MILLI.1),
        unit => (power(unit).ok_or_else(|| format!("unit {} not recognized", excerpt(unit)))?, 0),
    };
    let numerator = amount.digits * factor;
    let denominator = BigUint::from(10_u8).pow(amount.decimals) << halvings;
    let (whole, rest) = numerator.div_rem(&denominator);
    let sign = if amount.is_negative { "-" } else { "" };
    let text = if rest.is_zero() {
        if whole.is_zero() { whole.to_string() } else { format!("{sign}{whole}") }
    } else {
        // Ten decimals; halves are rounded away from zero.
        let scaled: BigUint = (numerator * BigUint::from(10_u8).pow(10) * 2_u8 + &denominator) / (denominator * 2_u8);
        let digits = format!("{scaled:0>11}", scaled = scaled.to_string());
        let (whole, decimals) = digits.split_at_checked(digits.len().saturating_sub(10)).unwrap_or((&digits, "0"));
        format!("{sign}{whole}.{decimals}")
    };
    Ok(Some(Value::Number(Number::parse(&text).ok_or("the amount has too many digits")?)))
}

/// Parses a number of bytes, such as `10MB` or `1.5GiB`, and truncates it to whole bytes; `m` is a million in either case.
fn parse_bytes(arguments: &[Value], context: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?.to_lowercase().replace('"', "");
    let (amount, unit) = split(&text)?;
    let factor = match unit.strip_suffix('b').unwrap_or(unit) {
        "" if unit == "b" => None,
        unit => power(unit),
    };
    let factor = factor.ok_or_else(|| format!("byte unit {} not recognized", excerpt(unit)))?;
    let amount = Decimal::read(amount).ok_or("could not parse byte amount to a number")?;
    context.work(amount.work())?;
    // OPA uses a mantissa of 64 bits for the amount and for the product.
    let (mantissa, exponent) = rounded(amount.digits, &BigUint::from(10_u8).pow(amount.decimals));
    let (mantissa, more) = rounded(mantissa * factor, &BigUint::one());
    let exponent = exponent.saturating_add(more);
    let shift = exponent.unsigned_abs();
    let bytes = if exponent < 0 { mantissa >> shift } else { mantissa << shift };
    let sign = if amount.is_negative { Sign::Minus } else { Sign::Plus };
    Ok(Some(Value::Number(written(&BigInt::from_biguint(sign, bytes))?)))
}

/// The amount and the unit of a quantity.
fn split(text: &str) -> Result<(&str, &str), Fault> {
    if text.contains(' ') {
        return Err("spaces not allowed in resource strings".into());
    }
    let bytes = text.as_bytes();
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let mut at = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        if matches!(byte, b'e' | b'E') {
            // `e` begins an exponent, or a unit.
            let next = bytes.get(at.saturating_add(1)).copied().unwrap_or_default();
            if !next.is_ascii_digit() && !matches!(next, b'+' | b'-') {
                break;
            }
            if matches!(next, b'+' | b'-') {
                at = at.saturating_add(1);
            }
            let digits = bytes.iter().skip(at.saturating_add(1)).take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 6 {
                return Err("exponent too large".into());
            }
        } else if !is_number(byte) && !matches!(byte, b'+' | b'-') {
            break;
        }
        at = at.saturating_add(1);
    }
    match text.split_at_checked(at) {
        Some(("", _)) | None => Err("no amount provided".into()),
        Some(parts) => Ok(parts),
    }
}

/// The factor of a unit, except for `m`.
fn power(unit: &str) -> Option<BigUint> {
    let (base, exponent) = match unit {
        "" => (1, 0),
        "k" | "K" => (KILO, 1),
        "ki" | "Ki" => (KIBI, 1),
        "m" | "M" => (KILO, 2),
        "mi" | "Mi" => (KIBI, 2),
        "g" | "G" => (KILO, 3),
        "gi" | "Gi" => (KIBI, 3),
        "t" | "T" => (KILO, 4),
        "ti" | "Ti" => (KIBI, 4),
        "p" | "P" => (KILO, 5),
        "pi" | "Pi" => (KIBI, 5),
        "e" | "E" => (KILO, 6),
        "ei" | "Ei" => (KIBI, 6),
        _ => return None,
    };
    Some(BigUint::from(base).pow(exponent))
}

/// A decimal: digits × 10^-decimals.
struct Decimal {
    is_negative: bool,
    digits: BigUint,
    decimals: u32,
}

impl Decimal {
    /// Work of dividing and of writing the decimal.
    fn work(&self) -> usize {
        let digits = usize::try_from(self.digits.bits() / 3).unwrap_or(usize::MAX);
        let decimals = usize::try_from(self.decimals).unwrap_or(usize::MAX);
        written_work(digits.saturating_add(decimals).saturating_mul(2)).saturating_add(500)
    }

    /// Parses numbers such as `-1.5e3`, `.5` and `1.`; `None` also if there are more digits than [`limit::DIGITS`].
    fn read(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        let most = i64::try_from(limit::DIGITS).ok()?;
        let decimals = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.len() > limit::DIGITS {
            return None;
        }
        let digits: BigUint = digits.parse().ok()?;
        if digits.is_zero() {
            return Some(Self { is_negative, digits, decimals: 0 });
        }
        if !(-most..=most).contains(&decimals) {
            return None;
        }
        let zeros = u32::try_from(decimals.saturating_neg()).unwrap_or(0);
        let digits = digits * BigUint::from(10_u8).pow(zeros);
        Some(Self { is_negative, digits, decimals: u32::try_from(decimals).unwrap_or(0) })
    }
}

/// A fraction as an integer of at most 64 bits and an exponent of two, rounded to nearest, ties to even.
fn rounded(numerator: BigUint, denominator: &BigUint) -> (BigUint, i64) {
    if numerator.is_zero() {
        return (numerator, 0);
    }
    let bits = |number: &BigUint| i64::try_from(number.bits()).unwrap_or(i64::MAX);
    // The quotient has two or three bits more than needed, from which it is rounded.
    let shift = 66 - (bits(&numerator) - bits(denominator));
    let by = shift.unsigned_abs();
    let (quotient, rest) =
        if shift >= 0 { (numerator << by).div_rem(denominator) } else { numerator.div_rem(&(denominator << by)) };
    let extra = bits(&quotient).saturating_sub(64).max(0).unsigned_abs();
    let half = BigUint::one() << extra.saturating_sub(1);
    let dropped = &quotient - ((&quotient >> extra) << extra);
    let mut mantissa = quotient >> extra;
    let is_more = dropped > half || (dropped == half && (!rest.is_zero() || mantissa.is_odd()));
    if extra > 0 && is_more {
        mantissa += 1_u8;
    }
    (mantissa, i64::try_from(extra).unwrap_or(i64::MAX) - shift)
}
