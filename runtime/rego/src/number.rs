//! Numbers as OPA keeps them: the text that was written, compared by what it is worth.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::BigInt;

use crate::go::float;
use crate::limit;

/// A number of any size and precision, as it was written: `1.50` stays `1.50`, and equals `1.5`.
#[derive(Clone)]
pub struct Number(Form);

/// Most numbers are small and whole; what is not is kept as text.
#[derive(Clone)]
enum Form {
    Whole(i64),
    /// JSON's grammar of a number, and not the text that [`Form::Whole`] would print.
    Text(Box<str>),
}

impl Number {
    /// Reads a number of JSON; `None` where it is not one, or longer than [`limit::DIGITS`], exponent included.
    pub fn parse(text: &str) -> Option<Self> {
        let decimal = Decimal::read(text)?;
        if text.len() > limit::DIGITS || decimal.position.unsigned_abs() > u64::try_from(limit::DIGITS).ok()? {
            return None;
        }
        // `-0` and the like are kept as written.
        match text.parse::<i64>() {
            Ok(whole) if text != "-0" => Some(Self(Form::Whole(whole))),
            _ => Some(Self(Form::Text(text.into()))),
        }
    }

    /// A float's number, in the shortest form that reads back as it, as Go's encoding/json writes it; `None` for NaN and the
    /// infinities.
    pub fn from_f64(float: f64) -> Option<Self> {
        let has_exponent = float != 0.0 && !(1e-6..1e21).contains(&float.abs());
        let text = float::format(float, if has_exponent { 'e' } else { 'f' }, None);
        Self::parse(&text.replace("e-0", "e-"))
    }

    /// The number, if it is whole and of 64 bits; `1.0` is, `1e0` is not, as in OPA.
    pub fn as_i64(&self) -> Option<i64> {
        let text = match &self.0 {
            Form::Whole(whole) => return Some(*whole),
            Form::Text(text) => text,
        };
        let (whole, zeros) = text.split_once('.').unwrap_or((text, ""));
        if text.trim_start_matches('-').len() > 19 || zeros.bytes().any(|byte| byte != b'0') {
            return None;
        }
        whole.parse().ok()
    }

    /// The number, if it is whole, however it is written.
    pub(crate) fn to_big_int(&self) -> Option<BigInt> {
        if let Form::Whole(whole) = &self.0 {
            return Some((*whole).into());
        }
        let decimal = Decimal::read(&self.to_string())?;
        if decimal.digits.is_empty() {
            return Some(BigInt::ZERO);
        }
        let zeros = usize::try_from(decimal.position).ok()?.checked_sub(decimal.digits.len())?;
        let sign = if decimal.negative { "-" } else { "" };
        format!("{sign}{}{}", decimal.digits, "0".repeat(zeros)).parse().ok()
    }

    /// The nearest float; what is too large is infinite.
    pub fn as_f64(&self) -> f64 {
        match &self.0 {
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
            Form::Whole(whole) => *whole as f64,
            Form::Text(text) => text.parse().unwrap_or(f64::NAN),
        }
    }
}

impl From<i64> for Number {
    fn from(whole: i64) -> Self {
        Self(Form::Whole(whole))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Whole(whole) => whole.fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Form::Whole(one), Form::Whole(other)) = (&self.0, &other.0) {
            return one.cmp(other);
        }
        let (one, other) = (self.to_string(), other.to_string());
        match (Decimal::read(&one), Decimal::read(&other)) {
            (Some(one), Some(other)) => one.cmp(&other),
            // Both were read when they were made.
            (one, other) => one.is_some().cmp(&other.is_some()),
        }
    }
}

/// What a number is worth: 0.DIGITS × 10^position.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    /// Without zeros at either end; none for zero.
    digits: String,
    position: i64,
}

impl Decimal {
    /// Reads JSON's grammar of a number, and nothing else.
    fn read(text: &str) -> Option<Self> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let only_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || !only_digits(whole)
            || !only_digits(fraction)
            || (whole.len() > 1 && whole.starts_with('0'))
        {
            return None;
        }
        let all = [whole, fraction].concat();
        let leading = all.bytes().take_while(|&byte| byte == b'0').count();
        let digits = all.trim_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, position: 0 });
        }
        let position =
            i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(leading).ok()?)?.checked_add(exponent)?;
        Some(Self { negative, digits, position })
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |decimal: &Self| match (decimal.digits.is_empty(), decimal.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        sign(self).cmp(&sign(other)).then_with(|| {
            let magnitude = self.position.cmp(&other.position).then_with(|| self.digits.cmp(&other.digits));
            if self.negative { magnitude.reverse() } else { magnitude }
        })
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
