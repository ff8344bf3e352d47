//! Parsing of a time in one of Go's layouts.

use jiff::civil::Date;

use super::layout::{self, Chunk, MONTHS, OffsetForm, WEEKDAYS};
use crate::builtin::{Fault, excerpt};

/// Parses a time like Go's time.Parse with UTC as local time. Returns nanoseconds since 1970.
///
/// # Errors
///
/// If the text does not match the layout, or the time does not exist.
pub(crate) fn parse(layout: &str, text: &str) -> Result<i128, Fault> {
    let mut fields = Fields::default();
    let mut rest = text.as_bytes();
    let mut layout_rest = layout;
    loop {
        let (prefix, chunk, suffix) = layout::next(layout_rest);
        let here = skip(rest, prefix.as_bytes()).and_then(|after| match chunk {
            Some(chunk) => fields.read(chunk, after, suffix),
            None if after.is_empty() => Ok(after),
            None => Err(Wrong::Shape),
        });
        rest = here.map_err(|wrong| match wrong {
            Wrong::Shape => Fault::from(format!(
                "parsing time {:?} as {:?}: cannot parse {:?}",
                excerpt(text),
                excerpt(layout),
                excerpt(&lossy(rest))
            )),
            Wrong::Range(field) => format!("parsing time {:?}: {field} out of range", excerpt(text)).into(),
        })?;
        if chunk.is_none() {
            return fields
                .nanoseconds()
                .ok_or_else(|| format!("parsing time {:?}: day out of range", excerpt(text)).into());
        }
        layout_rest = suffix;
    }
}

enum Wrong {
    Shape,
    Range(&'static str),
}

#[derive(Default)]
struct Fields {
    year: i16,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanosecond: i64,
    /// Whether the time is PM (`true`) or AM (`false`).
    is_after_noon: Option<bool>,
    /// Seconds east of UTC.
    offset: i64,
    is_utc: bool,
}

impl Fields {
    /// Reads one chunk; returns the text after it. `after` is the rest of the layout.
    fn read<'a>(&mut self, chunk: Chunk, text: &'a [u8], after: &str) -> Result<&'a [u8], Wrong> {
        let (rest, range) = match chunk {
            Chunk::Year => {
                let (digits, rest) = text.split_at_checked(2).ok_or(Wrong::Shape)?;
                let year: i16 = whole(digits)?;
                self.year = if year >= 69 { year + 1900 } else { year + 2000 };
                (rest, None)
            }
            Chunk::LongYear => {
                let (digits, rest) = text.split_at_checked(4).ok_or(Wrong::Shape)?;
                self.year = whole(digits)?;
                (rest, None)
            }
            Chunk::Month | Chunk::LongMonth => {
                let (index, rest) = name(&MONTHS, chunk == Chunk::LongMonth, text)?;
                self.month = Some(index + 1);
                (rest, None)
            }
            Chunk::Weekday | Chunk::LongWeekday => (name(&WEEKDAYS, chunk == Chunk::LongWeekday, text)?.1, None),
            Chunk::NumberMonth | Chunk::ZeroMonth => {
                let (month, rest) = number(text, chunk == Chunk::ZeroMonth)?;
                self.month = Some(month);
                (rest, Some((month, 1, 12, "month")))
            }
            Chunk::Day | Chunk::BlankDay | Chunk::ZeroDay => {
                let text = if chunk == Chunk::BlankDay { text.strip_prefix(b" ").unwrap_or(text) } else { text };
                let (day, rest) = number(text, chunk == Chunk::ZeroDay)?;
                self.day = Some(day);
                (rest, None)
            }
            Chunk::BlankDayOfYear | Chunk::ZeroDayOfYear => {
                let (day, rest) = day_of_year(text, chunk == Chunk::ZeroDayOfYear)?;
                self.day_of_year = Some(day);
                (rest, None)
            }
            Chunk::Hour => {
                let (hour, rest) = number(text, false)?;
                self.hour = hour;
                (rest, Some((hour, 0, 23, "hour")))
            }
            Chunk::Hour12 | Chunk::ZeroHour12 => {
                let (hour, rest) = number(text, chunk == Chunk::ZeroHour12)?;
                self.hour = hour;
                (rest, Some((hour, 0, 12, "hour")))
            }
            Chunk::Minute | Chunk::ZeroMinute => {
                let (minute, rest) = number(text, chunk == Chunk::ZeroMinute)?;
                self.minute = minute;
                (rest, Some((minute, 0, 59, "minute")))
            }
            Chunk::Second | Chunk::ZeroSecond => {
                let (second, rest) = number(text, chunk == Chunk::ZeroSecond)?;
                self.second = second;
                (self.unasked_fraction(rest, after), Some((second, 0, 59, "second")))
            }
            Chunk::Noon | Chunk::SmallNoon => (self.noon(text, chunk == Chunk::Noon)?, None),
            Chunk::Zone => (self.zone(text)?, None),
            Chunk::Offset { zulu: true, .. } if text.starts_with(b"Z") => {
                self.is_utc = true;
                (text.get(1..).unwrap_or_default(), None)
            }
            Chunk::Offset { form, .. } => (self.offset(form, text)?, None),
            Chunk::Fraction { digits, .. } => {
                let (fraction, rest) = text.split_at_checked(digits.saturating_add(1)).ok_or(Wrong::Shape)?;
                self.nanosecond = nanoseconds(fraction)?;
                (rest, None)
            }
            Chunk::TrimmedFraction { .. } => match fraction_length(text) {
                Some(length) => {
                    let (fraction, rest) = text.split_at_checked(length).ok_or(Wrong::Shape)?;
                    self.nanosecond = nanoseconds(fraction)?;
                    (rest, None)
                }
                None => (text, None),
            },
        };
        match range {
            Some((number, least, most, field)) if number < least || number > most => Err(Wrong::Range(field)),
            _ => Ok(rest),
        }
    }

    /// Reads a fraction of a second that the layout does not have, which Go accepts.
    fn unasked_fraction<'a>(&mut self, text: &'a [u8], after: &str) -> &'a [u8] {
        let is_asked = matches!(layout::next(after).1, Some(Chunk::Fraction { .. } | Chunk::TrimmedFraction { .. }));
        let Some((fraction, rest)) = fraction_length(text).and_then(|length| text.split_at_checked(length)) else {
            return text;
        };
        match nanoseconds(fraction) {
            Ok(nanosecond) if !is_asked => {
                self.nanosecond = nanosecond;
                rest
            }
            _ => text,
        }
    }

    fn noon<'a>(&mut self, text: &'a [u8], is_capital: bool) -> Result<&'a [u8], Wrong> {
        let (word, rest) = text.split_at_checked(2).ok_or(Wrong::Shape)?;
        self.is_after_noon = match (word, is_capital) {
            (b"PM", true) | (b"pm", false) => Some(true),
            (b"AM", true) | (b"am", false) => Some(false),
            _ => return Err(Wrong::Shape),
        };
        Ok(rest)
    }

    /// Reads a zone's name. Go knows an offset only for UTC.
    fn zone<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], Wrong> {
        if let Some(rest) = text.strip_prefix(b"UTC") {
            self.is_utc = true;
            return Ok(rest);
        }
        let length = zone_length(text).ok_or(Wrong::Shape)?;
        text.get(length..).ok_or(Wrong::Shape)
    }

    fn offset<'a>(&mut self, form: OffsetForm, text: &'a [u8]) -> Result<&'a [u8], Wrong> {
        let (sign, mut rest) = text.split_first().ok_or(Wrong::Shape)?;
        let pairs = match form {
            OffsetForm::Hours => 1,
            OffsetForm::Minutes | OffsetForm::ColonMinutes => 2,
            OffsetForm::Seconds | OffsetForm::ColonSeconds => 3,
        };
        let mut parts = [0; 3];
        for (index, part) in parts.iter_mut().enumerate().take(pairs) {
            if index > 0 && form.has_colons() {
                rest = rest.strip_prefix(b":").ok_or(Wrong::Shape)?;
            }
            let (digits, after) = rest.split_at_checked(2).ok_or(Wrong::Shape)?;
            *part = number(digits, true)?.0;
            rest = after;
        }
        let [hours, minutes, seconds] = parts;
        for (number, most, field) in [
            (hours, 24, "time zone offset hour"),
            (minutes, 60, "time zone offset minute"),
            (seconds, 60, "time zone offset second"),
        ] {
            if number > most {
                return Err(Wrong::Range(field));
            }
        }
        let offset = (hours * 60 + minutes) * 60 + seconds;
        self.offset = match sign {
            b'+' => offset,
            b'-' => -offset,
            _ => return Err(Wrong::Shape),
        };
        Ok(rest)
    }

    /// Nanoseconds since 1970; `None` if the date does not exist.
    fn nanoseconds(&self) -> Option<i128> {
        let hour = match self.is_after_noon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let date = match self.day_of_year {
            Some(day) => {
                let first = Date::new(self.year, 1, 1).ok()?;
                let date = first.with().day_of_year(i16::try_from(day).ok()?).build().ok()?;
                let agrees = |field: Option<i64>, is: i8| field.is_none_or(|field| field == i64::from(is));
                if !agrees(self.month, date.month()) || !agrees(self.day, date.day()) {
                    return None;
                }
                date
            }
            None => {
                let month = i8::try_from(self.month.unwrap_or(1)).ok()?;
                Date::new(self.year, month, i8::try_from(self.day.unwrap_or(1)).ok()?).ok()?
            }
        };
        let offset = if self.is_utc { 0 } else { self.offset };
        let seconds = crate::time::days(date) * 86_400 + hour * 3_600 + self.minute * 60 + self.second - offset;
        Some(i128::from(seconds) * 1_000_000_000 + i128::from(self.nanosecond))
    }
}

/// Skips the text between chunks; a blank in the layout matches any number of blanks.
fn skip<'a>(mut text: &'a [u8], mut prefix: &[u8]) -> Result<&'a [u8], Wrong> {
    while let Some((wanted, rest)) = prefix.split_first() {
        if *wanted == b' ' {
            if text.first().is_some_and(|byte| *byte != b' ') {
                return Err(Wrong::Shape);
            }
            prefix = without_blanks(prefix);
            text = without_blanks(text);
            continue;
        }
        text = text.split_first().filter(|(byte, _)| *byte == wanted).ok_or(Wrong::Shape)?.1;
        prefix = rest;
    }
    Ok(text)
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    text.get(blanks..).unwrap_or_default()
}

/// Reads one or two digits; with `is_two`, exactly two.
fn number(text: &[u8], is_two: bool) -> Result<(i64, &[u8]), Wrong> {
    let digits = text.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || (is_two && digits == 1) {
        return Err(Wrong::Shape);
    }
    let (digits, rest) = text.split_at_checked(digits).ok_or(Wrong::Shape)?;
    Ok((whole(digits)?, rest))
}

/// Reads up to three digits after up to two blanks; with `is_three`, exactly three digits.
fn day_of_year(text: &[u8], is_three: bool) -> Result<(i64, &[u8]), Wrong> {
    let mut text = text;
    if !is_three {
        for _ in 0..2 {
            text = text.strip_prefix(b" ").unwrap_or(text);
        }
    }
    let digits = text.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || (is_three && digits < 3) {
        return Err(Wrong::Shape);
    }
    let (digits, rest) = text.split_at_checked(digits).ok_or(Wrong::Shape)?;
    Ok((whole(digits)?, rest))
}

/// Reads a full name or its first three letters, in any letter case. Returns the name's index.
fn name<'a>(names: &[&str], is_long: bool, text: &'a [u8]) -> Result<(i64, &'a [u8]), Wrong> {
    for (index, name) in (0..).zip(names.iter().copied()) {
        let name = if is_long { name } else { name.get(..3).unwrap_or(name) };
        if let Some((start, rest)) = text.split_at_checked(name.len())
            && start.eq_ignore_ascii_case(name.as_bytes())
        {
            return Ok((index, rest));
        }
    }
    Err(Wrong::Shape)
}

/// The length of a point or comma and the digits after it; `None` if there are none.
fn fraction_length(text: &[u8]) -> Option<usize> {
    let (separator, rest) = text.split_first()?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if matches!(separator, b'.' | b',') && digits > 0 { Some(digits.saturating_add(1)) } else { None }
}

/// A fraction of a second, with its separator, in nanoseconds; digits after the ninth are ignored.
fn nanoseconds(fraction: &[u8]) -> Result<i64, Wrong> {
    let (separator, digits) = fraction.split_first().ok_or(Wrong::Shape)?;
    if !matches!(separator, b'.' | b',') {
        return Err(Wrong::Shape);
    }
    let digits = digits.get(..9).unwrap_or(digits);
    let scale = u32::try_from(9_usize.saturating_sub(digits.len())).unwrap_or(0);
    Ok(whole::<i64>(digits)? * 10_i64.pow(scale))
}

/// The length of a zone's name.
fn zone_length(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if let Some(rest) = text.strip_prefix(b"GMT") {
        return Some(signed_length(rest).saturating_add(3));
    }
    if matches!(text.first(), Some(b'+' | b'-')) {
        return Some(signed_length(text)).filter(|length| *length > 0);
    }
    match text.iter().take(6).take_while(|byte| byte.is_ascii_uppercase()).count() {
        5 if text.get(4) == Some(&b'T') => Some(5),
        4 if text.get(3) == Some(&b'T') || text.starts_with(b"WITA") => Some(4),
        3 => Some(3),
        _ => None,
    }
}

/// The length of a sign and a number of at most 23; 0 if there is none.
fn signed_length(text: &[u8]) -> usize {
    let Some((b'+' | b'-', rest)) = text.split_first() else { return 0 };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest.get(..digits).and_then(|digits| whole::<i64>(digits).ok()) {
        Some(..=23) => digits.saturating_add(1),
        _ => 0,
    }
}

fn whole<T: std::str::FromStr>(digits: &[u8]) -> Result<T, Wrong> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Wrong::Shape);
    }
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Wrong::Shape)
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
