//! One argument under one verb of Go's fmt: `%5.2f`, `%-10s`, `%#x`.

use std::fmt::Write;

use num_bigint::BigInt;
use num_traits::{Signed, Zero};

use super::{float, quote};
use crate::builtin::Fault;
use crate::context::Text;
use crate::go::quote::Shown;
use crate::operand::too_long;
use crate::{Context, Value, limit};

/// An argument as OPA passes it to Go: collections, booleans and null become texts.
pub(crate) enum Argument {
    Text(String),
    Integer(i64),
    Float(f64),
    Large(BigInt),
}

/// Flags, width and precision of a verb.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flags {
    pub(crate) plus: bool,
    pub(crate) minus: bool,
    pub(crate) sharp: bool,
    pub(crate) space: bool,
    pub(crate) zero: bool,
    /// The flags `+` and `#` of `%v`, which have another meaning there.
    pub(crate) plus_v: bool,
    pub(crate) sharp_v: bool,
    pub(crate) width: Option<usize>,
    pub(crate) precision: Option<usize>,
}

impl Argument {
    /// Converts a value as OPA does.
    ///
    /// # Errors
    ///
    /// If the evaluation's budget is spent.
    pub(crate) fn of(value: &Value, context: &Context) -> Result<Self, Fault> {
        let number = match value {
            Value::String(text) => {
                context.charge(text.len())?;
                return Ok(Self::Text(text.clone()));
            }
            Value::Number(number) => number,
            other => {
                let mut text = Text::of_call(context);
                context.work_on(other.weight().saturating_mul(4))?;
                write!(text, "{}", Shown(other)).map_err(|_| too_long())?;
                return Ok(Self::Text(text.take()));
            }
        };
        context.work(number.text_bytes().saturating_mul(number.text_bytes() / 16).saturating_add(200))?;
        if let Some(integer) = number.as_i64_of_digits() {
            return Ok(Self::Integer(integer));
        }
        let text = number.to_string();
        if text.contains(['.', 'e', 'E']) {
            let float = number.as_f64();
            return Ok(if float.is_finite() { Self::Float(float) } else { Self::Text(text) });
        }
        Ok(match text.parse() {
            Ok(large) => Self::Large(large),
            Err(_) => Self::Text(text),
        })
    }

    /// Charges for the work of a verb besides the text that it writes.
    ///
    /// # Errors
    ///
    /// If the evaluation's budget is spent.
    pub(crate) fn charge(&self, flags: &Flags, context: &Context) -> Result<(), Fault> {
        let (work, weight) = match self {
            // The characters are read, and copied up to the precision.
            Self::Text(text) => {
                let length = text.len().min(flags.precision.unwrap_or(usize::MAX).saturating_mul(4));
                (length.saturating_mul(30), length.min(limit::TEXT_BYTES).saturating_mul(3))
            }
            Self::Integer(_) => (0, 0),
            // All digits are generated, and trailing zeros removed afterwards.
            Self::Float(_) => (flags.precision.unwrap_or(20).min(float::MAX_DIGITS).saturating_mul(40), 0),
            Self::Large(large) => {
                let digits = usize::try_from(large.bits() / 3).unwrap_or(usize::MAX);
                (digits.saturating_mul(digits / 64 + 16), digits.saturating_mul(4))
            }
        };
        let padded = flags.width.unwrap_or(0).saturating_add(flags.precision.unwrap_or(0));
        context.charge(weight.saturating_add(padded.saturating_mul(2)))?;
        context.work(work.saturating_add(padded.saturating_mul(4)))
    }

    /// The argument as a width or precision of `*`; `None` if it is not a valid one.
    pub(crate) fn as_width(&self) -> Option<i64> {
        match self {
            Self::Integer(width) if (-1_000_000..=1_000_000).contains(width) => Some(*width),
            _ => None,
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Integer(_) => "int64",
            Self::Float(_) => "float64",
            Self::Large(_) => "*big.Int",
        }
    }

    /// Writes the argument as formatted by a verb, or Go's error text if the verb does not apply to it.
    pub(crate) fn print(&self, verb: char, flags: &Flags, to: &mut String) {
        if verb == 'T' {
            return flags.pad(&flags.truncated(self.type_name()), to);
        }
        let known = match self {
            Self::Text(text) => print_text(text, verb, flags, to),
            Self::Integer(integer) => print_integer(*integer, verb, flags, to),
            Self::Float(float) => print_float(*float, verb, flags, to),
            Self::Large(large) => {
                print_large(large, verb, flags, to);
                true
            }
        };
        if !known {
            to.push_str("%!");
            to.push(verb);
            to.push('(');
            to.push_str(self.type_name());
            to.push('=');
            self.print('v', flags, to);
            to.push(')');
        }
    }
}

impl Flags {
    /// Writes a text, padded with blanks or zeros to the width.
    fn pad(&self, text: &str, to: &mut String) {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        let filler = if self.zero && !self.minus { '0' } else { ' ' };
        if self.minus {
            to.push_str(text);
        }
        to.extend(std::iter::repeat_n(filler, missing));
        if !self.minus {
            to.push_str(text);
        }
    }

    /// Like [`Flags::pad`], always with blanks.
    fn pad_with_blanks(&self, text: &str, to: &mut String) {
        Self { zero: false, ..*self }.pad(text, to);
    }

    fn truncated(&self, text: &str) -> String {
        match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            // A text longer than a call may write is not copied completely; it is refused later.
            None => text.get(..text.floor_char_boundary(limit::TEXT_BYTES + 4)).unwrap_or(text).to_owned(),
        }
    }
}

fn print_text(text: &str, verb: char, flags: &Flags, to: &mut String) -> bool {
    let quoted = |text: &str| {
        if flags.sharp && quote::can_backquote(text) { format!("`{text}`") } else { quote::quoted(text, flags.plus) }
    };
    match verb {
        'v' if flags.sharp_v => flags.pad(&quote::quoted(&flags.truncated(text), false), to),
        'v' | 's' => flags.pad(&flags.truncated(text), to),
        'q' => flags.pad(&quoted(&flags.truncated(text)), to),
        'x' | 'X' => print_bytes(text.as_bytes(), verb, flags, to),
        _ => return false,
    }
    true
}

/// Writes two hexadecimal digits for each byte.
fn print_bytes(bytes: &[u8], verb: char, flags: &Flags, to: &mut String) {
    let most = flags.precision.unwrap_or(usize::MAX).min(limit::TEXT_BYTES);
    let bytes = bytes.get(..most).unwrap_or(bytes);
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if flags.space && index > 0 {
            text.push(' ');
        }
        if flags.sharp && (flags.space || index == 0) {
            text.push_str("0x");
        }
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        text.extend([digit(byte >> 4), digit(byte & 0xf)]);
        if text.len() > limit::TEXT_BYTES {
            break;
        }
    }
    flags.pad(&if verb == 'X' { text.to_uppercase() } else { text }, to);
}

fn print_integer(integer: i64, verb: char, flags: &Flags, to: &mut String) -> bool {
    let character = u32::try_from(integer).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
    match verb {
        'v' | 'd' | 'b' | 'o' | 'O' | 'x' | 'X' => print_digits(integer, verb, flags, to),
        'c' => flags.pad(&character.to_string(), to),
        'q' => flags.pad(&quote::quoted_char(character, flags.plus), to),
        'U' => {
            // Negative numbers are interpreted as unsigned.
            let code = integer.cast_unsigned();
            let digits = format!("{code:X}");
            let zeros = flags.precision.unwrap_or(4).max(4).saturating_sub(digits.len());
            let mut text = format!("U+{}{digits}", "0".repeat(zeros));
            if let Some(c) = u32::try_from(code).ok().and_then(char::from_u32)
                && flags.sharp
                && quote::is_printable(c)
            {
                text.push_str(&format!(" '{c}'"));
            }
            flags.pad_with_blanks(&text, to);
        }
        _ => return false,
    }
    true
}

fn print_digits(integer: i64, verb: char, flags: &Flags, to: &mut String) {
    if integer == 0 && flags.precision == Some(0) {
        return flags.pad_with_blanks("", to);
    }
    let magnitude = integer.unsigned_abs();
    let sign = match integer < 0 {
        true => "-",
        false if flags.plus => "+",
        false if flags.space => " ",
        false => "",
    };
    let least = match (flags.precision, flags.width) {
        (Some(precision), _) => precision,
        (None, Some(width)) if flags.zero && !flags.minus => width.saturating_sub(sign.len()),
        (None, _) => 0,
    };
    let mut digits = match verb {
        'b' => format!("{magnitude:b}"),
        'o' | 'O' => format!("{magnitude:o}"),
        'x' => format!("{magnitude:x}"),
        'X' => format!("{magnitude:X}"),
        _ => magnitude.to_string(),
    };
    digits.insert_str(0, &"0".repeat(least.saturating_sub(digits.len())));
    let prefix = match verb {
        'b' if flags.sharp => "0b",
        'o' if flags.sharp && !digits.starts_with('0') => "0",
        // `%#O` writes both prefixes.
        'O' if flags.sharp && !digits.starts_with('0') => "0o0",
        'O' => "0o",
        'x' if flags.sharp => "0x",
        'X' if flags.sharp => "0X",
        _ => "",
    };
    flags.pad_with_blanks(&format!("{sign}{prefix}{digits}"), to);
}

fn print_float(float: f64, verb: char, flags: &Flags, to: &mut String) -> bool {
    let (verb, default) = match verb {
        'v' => ('g', None),
        'b' | 'g' | 'G' | 'x' | 'X' => (verb, None),
        'f' | 'e' | 'E' => (verb, Some(6)),
        'F' => ('f', Some(6)),
        _ => return false,
    };
    let precision = flags.precision.or(default);
    let text = float::format(float, verb, precision);
    let (negative, mut digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits.to_owned()),
        None => (false, text),
    };
    if flags.sharp && verb != 'b' {
        digits = with_point(&digits, verb, precision);
    }
    let sign = match negative {
        true => "-",
        false if flags.plus => "+",
        false if flags.space => " ",
        false => "",
    };
    if !sign.is_empty() && flags.zero && !flags.minus {
        let zeros = flags.width.unwrap_or(0).saturating_sub(sign.len()).saturating_sub(digits.len());
        digits.insert_str(0, &"0".repeat(zeros));
    }
    flags.pad(&format!("{sign}{digits}"), to);
    true
}

/// The flag `#`: always writes a point, and keeps the zeros that `%g` removes.
fn with_point(digits: &str, verb: char, precision: Option<usize>) -> String {
    let exponent = match verb {
        'x' | 'X' => digits.find(['p', 'P']),
        _ => digits.find(['e', 'E']),
    };
    let (mantissa, tail) = digits.split_at_checked(exponent.unwrap_or(digits.len())).unwrap_or((digits, ""));
    let mut wanted = match verb {
        'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    let significant = mantissa.chars().filter(|c| *c != '.').skip_while(|c| *c == '0').count();
    wanted = wanted.saturating_sub(significant);
    let mut text = mantissa.to_owned();
    if !mantissa.contains('.') {
        if mantissa == "0" {
            wanted = wanted.saturating_sub(1);
        }
        text.push('.');
    }
    text.push_str(&"0".repeat(wanted));
    text.push_str(tail);
    text
}

/// Go's big.Int has its own rules for flags, and its own error text for unknown verbs.
fn print_large(large: &BigInt, verb: char, flags: &Flags, to: &mut String) {
    let (radix, prefix) = match verb {
        'b' => (2, "0b"),
        'o' => (8, "0"),
        'O' => (8, ""),
        'd' | 's' | 'v' => (10, ""),
        'x' => (16, "0x"),
        'X' => (16, "0X"),
        _ => {
            to.push_str(&format!("%!{verb}(big.Int={large})"));
            return;
        }
    };
    let sign = match large.is_negative() {
        true => "-",
        false if flags.plus || flags.plus_v => "+",
        false if flags.space => " ",
        false => "",
    };
    let mut digits = large.abs().to_str_radix(radix);
    if verb == 'X' {
        digits = digits.to_uppercase();
    }
    let prefix = match verb {
        'O' => "0o",
        _ if flags.sharp || flags.sharp_v => prefix,
        _ => "",
    };
    if large.is_zero() && flags.precision == Some(0) {
        return;
    }
    let mut zeros = flags.precision.unwrap_or(0).saturating_sub(digits.len());
    let missing = flags
        .width
        .unwrap_or(0)
        .saturating_sub(sign.len().saturating_add(prefix.len()).saturating_add(zeros).saturating_add(digits.len()));
    let (mut left, mut right) = (0, 0);
    match flags {
        _ if flags.minus => right = missing,
        _ if flags.zero && flags.precision.is_none() => zeros = missing,
        _ => left = missing,
    }
    let blanks = |count| " ".repeat(count);
    to.push_str(&format!("{}{sign}{prefix}{}{digits}{}", blanks(left), "0".repeat(zeros), blanks(right)));
}
