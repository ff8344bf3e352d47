//! Numbers as in OPA: kept as written, and compared by value.

use std::cmp::Ordering;
use std::fmt;
use std::io::Write;

use num_bigint::BigInt;

use crate::go::float;
use crate::{limit, weight};

/// Maximum number of characters of a 64-bit integer, sign included.
const MAX_DIGITS: usize = 20;

/// A number of any size and precision, as it was written: `1.50` stays `1.50`, and equals `1.5`.
#[derive(Clone)]
pub struct Number(Form);

/// Most numbers are small and whole; others are kept as text.
#[derive(Clone)]
enum Form {
    Whole(i64),
    /// A number in JSON's grammar whose text differs from that of a [`Form::Whole`].
    Text(Box<str>),
}

impl Number {
    /// Parses a number as OPA's module writes it, which keeps the text that `to_number` was given: JSON's grammar, with
    /// zeros before other digits (`0500` is `500`), and `.5` and `5.`, which mean `0.5` and `5.0`. `None` as
    /// [`Number::parse`].
    pub(crate) fn parse_source(text: &str) -> Option<Self> {
        let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
        let (mantissa, exponent) = rest.split_at_checked(rest.find(['e', 'E']).unwrap_or(rest.len()))?;
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let has_leading_zeros = whole.len() > 1 && whole.starts_with('0');
        if !whole.is_empty() && !has_leading_zeros && fraction != Some("") {
            return Self::parse(text);
        }
        let fraction = match (whole, fraction) {
            ("", None | Some("")) => return None,
            (_, None) => String::new(),
            (_, Some("")) => ".0".to_owned(),
            (_, Some(fraction)) => format!(".{fraction}"),
        };
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        Self::parse(&format!("{sign}{whole}{fraction}{exponent}"))
    }

    /// Parses a number of JSON; `None` if it is not one, or if its text or its exponent exceeds [`limit::DIGITS`].
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > limit::DIGITS {
            return None;
        }
        let decimal = Decimal::read(text)?;
        if decimal.position.unsigned_abs() > u64::try_from(limit::DIGITS).ok()? {
            return None;
        }
        // `-0`, `1.0` and similar are kept as written.
        match text.parse::<i64>() {
            Ok(whole) if text != "-0" => Some(Self(Form::Whole(whole))),
            _ => Some(Self(Form::Text(text.into()))),
        }
    }

    /// The number of a float in the shortest form that parses to the same float, as by Go's encoding/json; `None` for NaN
    /// and the infinities.
    pub fn from_f64(float: f64) -> Option<Self> {
        let has_exponent = float != 0.0 && !(1e-6..1e21).contains(&float.abs());
        let text = float::format(float, if has_exponent { 'e' } else { 'f' }, None);
        Self::parse(&text.replace("e-0", "e-"))
    }

    /// The number as a 64-bit integer; `None` if it is not one. As in OPA, `1.0` is one and `1e0` is not.
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

    /// The number as a 64-bit integer, if it is written without a point or exponent, so that Go prints it as an integer.
    pub(crate) fn as_i64_of_digits(&self) -> Option<i64> {
        match &self.0 {
            Form::Whole(whole) => Some(*whole),
            Form::Text(text) if text.contains(['.', 'e', 'E']) => None,
            Form::Text(_) => self.as_i64(),
        }
    }

    /// The number, if it is whole, in any notation.
    pub(crate) fn to_big_int(&self) -> Option<BigInt> {
        if let Form::Whole(whole) = &self.0 {
            return Some((*whole).into());
        }
        let text = self.to_string();
        let decimal = Decimal::read(&text)?;
        if decimal.len() == 0 {
            return Some(BigInt::ZERO);
        }
        let zeros = usize::try_from(decimal.position).ok()?.checked_sub(decimal.len())?;
        let sign = if decimal.negative { "-" } else { "" };
        format!("{sign}{}{}{}", decimal.head, decimal.tail, "0".repeat(zeros)).parse().ok()
    }

    /// Bytes of memory of its text; 0 if it is not kept as text.
    pub(crate) fn text_bytes(&self) -> usize {
        match &self.0 {
            Form::Whole(_) => 0,
            Form::Text(text) => text.len().saturating_add(weight::TEXT),
        }
    }

    /// The number's text, without allocation: a [`Form::Whole`] is written to the buffer.
    fn text<'a>(&'a self, buffer: &'a mut [u8; MAX_DIGITS]) -> &'a str {
        match &self.0 {
            Form::Text(text) => text,
            Form::Whole(whole) => {
                let mut rest = buffer.as_mut_slice();
                // The buffer has room for any 64-bit integer.
                let _ = write!(rest, "{whole}");
                let left = rest.len();
                let written = MAX_DIGITS.saturating_sub(left);
                buffer.get(..written).and_then(|text| str::from_utf8(text).ok()).unwrap_or("0")
            }
        }
    }

    /// The nearest float; infinite if the number is too large.
    pub fn as_f64(&self) -> f64 {
        match &self.0 {
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
        if let (Form::Text(one), Form::Text(other)) = (&self.0, &other.0)
            && one == other
        {
            return Ordering::Equal;
        }
        let (mut one_buffer, mut other_buffer) = ([0; MAX_DIGITS], [0; MAX_DIGITS]);
        match (Decimal::read(self.text(&mut one_buffer)), Decimal::read(other.text(&mut other_buffer))) {
            (Some(one), Some(other)) => one.cmp(&other),
            // Both parse, since they were parsed when they were created.
            (one, other) => one.is_some().cmp(&other.is_some()),
        }
    }
}

/// The value of a number: 0.HEADTAIL × 10^position, without zeros at either end. Both parts are empty for zero.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    negative: bool,
    head: &'a str,
    tail: &'a str,
    position: i64,
}

impl<'a> Decimal<'a> {
    /// Parses JSON's grammar of a number, and nothing else.
    fn read(text: &'a str) -> Option<Self> {
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
        let (head, tail) = match whole.trim_start_matches('0') {
            "" => ("", fraction.trim_start_matches('0')),
            head => (head, fraction),
        };
        let (head, tail) = match tail.trim_end_matches('0') {
            "" => (head.trim_end_matches('0'), ""),
            tail => (head, tail),
        };
        if head.is_empty() && tail.is_empty() {
            return Some(Self { negative: false, head, tail, position: 0 });
        }
        // The number of zeros before the first significant digit.
        let leading = match whole.trim_start_matches('0') {
            "" => whole.len().checked_add(fraction.len() - fraction.trim_start_matches('0').len())?,
            head => whole.len() - head.len(),
        };
        let position =
            i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(leading).ok()?)?.checked_add(exponent)?;
        Some(Self { negative, head, tail, position })
    }

    fn len(&self) -> usize {
        self.head.len().saturating_add(self.tail.len())
    }

    fn digits(&self) -> impl Iterator<Item = u8> + 'a {
        self.head.bytes().chain(self.tail.bytes())
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |decimal: &Self| match (decimal.len() == 0, decimal.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        sign(self).cmp(&sign(other)).then_with(|| {
            let magnitude = self.position.cmp(&other.position).then_with(|| self.digits().cmp(other.digits()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_a_source_has_them() {
        for (source, expected) in [
            (".5", Some("0.5")),
            ("5.", Some("5.0")),
            ("-.5", Some("-0.5")),
            ("-5.", Some("-5.0")),
            (".5e3", Some("0.5e3")),
            ("5.E-3", Some("5.0E-3")),
            ("5", Some("5")),
            ("5.25", Some("5.25")),
            (".", None),
            ("-.", None),
            (".e3", None),
            ("0500", Some("500")),
            ("00", Some("0")),
            ("-05", Some("-5")),
            ("00.5", Some("0.5")),
            ("05.", Some("5.0")),
            ("0500e1", Some("500e1")),
            ("0", Some("0")),
            ("-0", Some("-0")),
            ("5..", None),
            ("0x5", None),
            ("-", None),
            ("1e", None),
            ("00e", None),
            ("1e+", None),
            ("e5", None),
            ("", None),
        ] {
            assert_eq!(Number::parse_source(source).map(|number| number.to_string()).as_deref(), expected, "{source}");
        }
        for text in [".5", "5.", "05"] {
            assert!(Number::parse(text).is_none(), "JSON has no {text}");
        }
    }

    #[test]
    fn numbers_compare_by_what_they_are_worth() {
        let ordered = [
            "-1e300",
            "-9223372036854775808",
            "-10",
            "-1.5",
            "-1",
            "-0.1",
            "-0.01",
            "0",
            "1e-300",
            "0.009",
            "0.01",
            "0.1",
            "0.5",
            "1",
            "1.00000000000000000001",
            "1.5",
            "9",
            "10",
            "99",
            "100",
            "9223372036854775807",
            "9223372036854775808",
            "1e300",
        ];
        let number = |text: &str| Number::parse(text).unwrap();
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(number(one).cmp(&number(other)), at.cmp(&other_at), "{one} {other}");
            }
        }
        for (one, other) in [
            ("1", "1.0"),
            ("1", "1e0"),
            ("0", "-0"),
            ("0", "0.00e5"),
            ("100", "1e2"),
            ("0.01", "1e-2"),
            ("10", "0.1e2"),
            ("1200", "1.20e3"),
        ] {
            assert_eq!(number(one), number(other), "{one} {other}");
        }
    }
}
