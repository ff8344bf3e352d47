//! Parses numbers like the kernel does for user input: `kstrtoul` and related functions (`lib/kstrtox.c`).
//!
//! One leading `+`, a leading `0x` in base 16, and one newline at the end are accepted; blanks are not.

use rustix::io::Errno;

/// The base of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Given by the prefix: `0x` for hexadecimal, `0` for octal, otherwise decimal.
    Any,
    Ten,
    Sixteen,
}

/// An unsigned number of at most `max`.
///
/// # Errors
///
/// `ERANGE` if it is larger, `EINVAL` if it is no number.
pub(crate) fn unsigned(text: &[u8], base: Base, max: u64) -> Result<u64, Errno> {
    magnitude(text.strip_prefix(b"+").unwrap_or(text), base, max)
}

/// A signed 32-bit number, whose prefix gives its base.
///
/// # Errors
///
/// As [`unsigned`].
pub(crate) fn int(text: &[u8]) -> Result<i32, Errno> {
    if let Some(digits) = text.strip_prefix(b"-") {
        let value = magnitude(digits, Base::Any, u64::from(i32::MIN.unsigned_abs()))?;
        let value = i64::try_from(value).map_err(|_| Errno::RANGE)?;
        return i32::try_from(-value).map_err(|_| Errno::RANGE);
    }
    let value = unsigned(text, Base::Any, u64::from(i32::MAX.unsigned_abs()))?;
    i32::try_from(value).map_err(|_| Errno::RANGE)
}

fn magnitude(text: &[u8], base: Base, max: u64) -> Result<u64, Errno> {
    let hex = match text {
        [b'0', b'x' | b'X', rest @ ..] => Some(rest),
        _ => None,
    };
    let (radix, digits) = match (base, hex) {
        (Base::Ten, _) => (10, text),
        (Base::Sixteen, Some(rest)) => (16, rest),
        (Base::Sixteen, None) => (16, text),
        (Base::Any, Some(rest)) if rest.first().is_some_and(u8::is_ascii_hexdigit) => (16, rest),
        (Base::Any, _) if text.first() == Some(&b'0') => (8, text),
        (Base::Any, _) => (10, text),
    };
    let count = digits.iter().take_while(|&&digit| char::from(digit).is_digit(radix)).count();
    let (number, rest) = digits.split_at(count);
    let value = number.iter().try_fold(0u64, |value, &digit| {
        value.checked_mul(u64::from(radix))?.checked_add(u64::from(char::from(digit).to_digit(radix)?))
    });
    // Too many digits are out of range whatever follows them; the range of the type is checked last.
    let value = value.ok_or(Errno::RANGE)?;
    if count == 0 || !matches!(rest, b"" | b"\n") {
        return Err(Errno::INVAL);
    }
    if value > max { Err(Errno::RANGE) } else { Ok(value) }
}

/// The text without whitespace at both ends (`strim`).
pub(crate) fn strim(text: &[u8]) -> &[u8] {
    // The kernel's `isspace` also counts the vertical tab, and 0xa0 of Latin-1.
    let blank = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0);
    let begin = text.iter().position(|byte| !blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !blank(byte)).map_or(begin, |last| last + 1);
    text.get(begin..end).unwrap_or_default()
}

/// The text before the first NUL, where a C string ends.
pub(crate) fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The text up to the separator, and the rest after it; `None` without a separator (`strsep`).
pub(crate) fn strsep(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |&byte| byte == separator);
    (parts.next().unwrap_or_default(), parts.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        for (text, base, value) in [
            ("0", Base::Ten, Ok(0)),
            ("+12", Base::Ten, Ok(12)),
            ("12\n", Base::Ten, Ok(12)),
            ("12\n\n", Base::Ten, Err(Errno::INVAL)),
            (" 12", Base::Ten, Err(Errno::INVAL)),
            ("12 ", Base::Ten, Err(Errno::INVAL)),
            ("", Base::Ten, Err(Errno::INVAL)),
            ("0x1f", Base::Sixteen, Ok(31)),
            ("0X1F", Base::Sixteen, Ok(31)),
            ("0x", Base::Sixteen, Err(Errno::INVAL)),
            ("1f", Base::Sixteen, Ok(31)),
            ("1g", Base::Sixteen, Err(Errno::INVAL)),
            ("-1", Base::Sixteen, Err(Errno::INVAL)),
            ("0x10", Base::Any, Ok(16)),
            ("010", Base::Any, Ok(8)),
            ("08", Base::Any, Err(Errno::INVAL)),
            ("0", Base::Any, Ok(0)),
            ("ffffffffffffffff", Base::Sixteen, Ok(u64::MAX)),
            ("10000000000000000", Base::Sixteen, Err(Errno::RANGE)),
        ] {
            assert_eq!(unsigned(text.as_bytes(), base, u64::MAX), value, "{text:?} {base:?}");
        }
        assert_eq!(unsigned(b"4294967296", Base::Ten, u64::from(u32::MAX)), Err(Errno::RANGE));
    }

    #[test]
    fn signed_numbers_end_at_their_bounds() {
        for (text, value) in [
            ("-1", Ok(-1)),
            ("2147483647", Ok(i32::MAX)),
            ("2147483648", Err(Errno::RANGE)),
            ("-2147483648", Ok(i32::MIN)),
            ("-2147483649", Err(Errno::RANGE)),
            ("-+1", Err(Errno::INVAL)),
            ("x", Err(Errno::INVAL)),
        ] {
            assert_eq!(int(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn blanks_are_taken_off_both_ends_only() {
        for (text, trimmed) in [(" a b\t\n", "a b"), ("", ""), ("  ", ""), ("a", "a")] {
            assert_eq!(strim(text.as_bytes()), trimmed.as_bytes(), "{text:?}");
        }
    }
}
