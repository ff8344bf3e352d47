//! Go's layouts of time: a layout shows how the reference time `Mon Jan 2 15:04:05 MST 2006` is written.

/// An element of a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Chunk {
    /// `06`
    Year,
    /// `2006`
    LongYear,
    /// `Jan`
    Month,
    /// `January`
    LongMonth,
    /// `1`
    NumberMonth,
    /// `01`
    ZeroMonth,
    /// `Mon`
    Weekday,
    /// `Monday`
    LongWeekday,
    /// `2`
    Day,
    /// `_2`
    BlankDay,
    /// `02`
    ZeroDay,
    /// `__2`
    BlankDayOfYear,
    /// `002`
    ZeroDayOfYear,
    /// `15`
    Hour,
    /// `3`
    Hour12,
    /// `03`
    ZeroHour12,
    /// `4`
    Minute,
    /// `04`
    ZeroMinute,
    /// `5`
    Second,
    /// `05`
    ZeroSecond,
    /// `PM`
    Noon,
    /// `pm`
    SmallNoon,
    /// `MST`
    Zone,
    /// `-0700` and similar; with `zulu`, a `Z` instead of the sign, which stands for UTC.
    Offset { form: OffsetForm, zulu: bool },
    /// `.000`: exactly this number of digits after a point or a comma.
    Fraction { digits: usize, separator: char },
    /// `.999`: at most this number of digits, without trailing zeros.
    TrimmedFraction { digits: usize, separator: char },
}

/// How an offset from UTC is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OffsetForm {
    /// `-07`
    Hours,
    /// `-0700`
    Minutes,
    /// `-07:00`
    ColonMinutes,
    /// `-070000`
    Seconds,
    /// `-07:00:00`
    ColonSeconds,
}

impl OffsetForm {
    pub(crate) fn has_colons(self) -> bool {
        matches!(self, Self::ColonMinutes | Self::ColonSeconds)
    }

    pub(crate) fn has_seconds(self) -> bool {
        matches!(self, Self::Seconds | Self::ColonSeconds)
    }
}

/// Chunks in matching order: a chunk precedes its prefixes.
const CHUNKS: [(&str, Chunk); 32] = [
    ("January", Chunk::LongMonth),
    ("Jan", Chunk::Month),
    ("Monday", Chunk::LongWeekday),
    ("Mon", Chunk::Weekday),
    ("MST", Chunk::Zone),
    ("01", Chunk::ZeroMonth),
    ("02", Chunk::ZeroDay),
    ("03", Chunk::ZeroHour12),
    ("04", Chunk::ZeroMinute),
    ("05", Chunk::ZeroSecond),
    ("06", Chunk::Year),
    ("002", Chunk::ZeroDayOfYear),
    ("15", Chunk::Hour),
    ("1", Chunk::NumberMonth),
    ("2006", Chunk::LongYear),
    ("2", Chunk::Day),
    ("_2", Chunk::BlankDay),
    ("__2", Chunk::BlankDayOfYear),
    ("3", Chunk::Hour12),
    ("4", Chunk::Minute),
    ("5", Chunk::Second),
    ("PM", Chunk::Noon),
    ("pm", Chunk::SmallNoon),
    ("070000", Chunk::Offset { form: OffsetForm::Seconds, zulu: false }),
    ("07:00:00", Chunk::Offset { form: OffsetForm::ColonSeconds, zulu: false }),
    ("0700", Chunk::Offset { form: OffsetForm::Minutes, zulu: false }),
    ("07:00", Chunk::Offset { form: OffsetForm::ColonMinutes, zulu: false }),
    ("07", Chunk::Offset { form: OffsetForm::Hours, zulu: false }),
    (".0", Chunk::Fraction { digits: 0, separator: '.' }),
    (".9", Chunk::TrimmedFraction { digits: 0, separator: '.' }),
    (",0", Chunk::Fraction { digits: 0, separator: ',' }),
    (",9", Chunk::TrimmedFraction { digits: 0, separator: ',' }),
];

/// OPA's names of layouts.
const NAMED: [(&str, &str); 10] = [
    ("ANSIC", "Mon Jan _2 15:04:05 2006"),
    ("UnixDate", "Mon Jan _2 15:04:05 MST 2006"),
    ("RubyDate", "Mon Jan 02 15:04:05 -0700 2006"),
    ("RFC822", "02 Jan 06 15:04 MST"),
    ("RFC822Z", "02 Jan 06 15:04 -0700"),
    ("RFC850", "Monday, 02-Jan-06 15:04:05 MST"),
    ("RFC1123", "Mon, 02 Jan 2006 15:04:05 MST"),
    ("RFC1123Z", "Mon, 02 Jan 2006 15:04:05 -0700"),
    ("RFC3339", RFC3339),
    ("RFC3339Nano", RFC3339_NANO),
];

/// `2006-01-02T15:04:05Z07:00`
pub(crate) const RFC3339: &str = "2006-01-02T15:04:05Z07:00";

/// Like [`RFC3339`], with nanoseconds.
pub(crate) const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

pub(crate) const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The layout with this name, or the layout itself.
pub(crate) fn named(layout: &str) -> &str {
    NAMED.iter().find(|(name, _)| *name == layout).map_or(layout, |(_, layout)| layout)
}

/// Work of reading a byte of a layout, at which any chunk may begin.
pub(crate) const WORK: usize = 150;

/// The text before the next chunk, the chunk, and what follows it.
pub(crate) fn next(layout: &str) -> (&str, Option<Chunk>, &str) {
    for (at, _) in layout.char_indices() {
        let rest = layout.get(at..).unwrap_or_default();
        let Some((chunk, length)) = chunk(rest) else { continue };
        // `_2006` is a `_` and a year, not the day `_2` with text after it.
        let at = if rest.starts_with("_2006") { at.saturating_add(1) } else { at };
        let after = at.saturating_add(length);
        return (layout.get(..at).unwrap_or_default(), Some(chunk), layout.get(after..).unwrap_or_default());
    }
    (layout, None, "")
}

/// The chunk with which a text begins, and its length.
fn chunk(text: &str) -> Option<(Chunk, usize)> {
    if text.starts_with("_2006") {
        return Some((Chunk::LongYear, 4));
    }
    let (offset, zulu) = match text.strip_prefix('-') {
        Some(offset) => (Some(offset), false),
        None => (text.strip_prefix('Z'), true),
    };
    for (pattern, chunk) in CHUNKS {
        match chunk {
            Chunk::Offset { form, .. } => {
                if offset.is_some_and(|offset| offset.starts_with(pattern)) {
                    return Some((Chunk::Offset { form, zulu }, pattern.len().saturating_add(1)));
                }
            }
            _ if !text.starts_with(pattern) => {}
            Chunk::Month | Chunk::Weekday if text.as_bytes().get(pattern.len()).is_some_and(u8::is_ascii_lowercase) => {
            }
            Chunk::Fraction { separator, .. } => {
                if let Some(digits) = fraction(text, b'0') {
                    return Some((Chunk::Fraction { digits, separator }, digits.saturating_add(1)));
                }
            }
            Chunk::TrimmedFraction { separator, .. } => {
                if let Some(digits) = fraction(text, b'9') {
                    return Some((Chunk::TrimmedFraction { digits, separator }, digits.saturating_add(1)));
                }
            }
            _ => return Some((chunk, pattern.len())),
        }
    }
    None
}

/// The number of repetitions of a digit after the separator; `None` if another digit follows.
fn fraction(text: &str, digit: u8) -> Option<usize> {
    let digits = text.bytes().skip(1).take_while(|byte| *byte == digit).count();
    let next = text.as_bytes().get(digits.saturating_add(1));
    if next.is_some_and(u8::is_ascii_digit) { None } else { Some(digits) }
}
