//! `time.*`: conversions between nanoseconds since 1970 and calendar dates and times of day.

use std::sync::LazyLock;

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, tz};

use crate::builtin::{Fault, Outcome, excerpt};
use crate::context::Text;
use crate::go::layout::{self, Chunk, MONTHS, OffsetForm, WEEKDAYS};
use crate::go::parse::parse;
use crate::operand::Operands;
use crate::table::{Entry, differing, host};
use crate::{Context, Number, Value};

pub(crate) const ENTRIES: &[Entry] = &[
    differing("time.add_date", 4, add_date, NO_LOCAL),
    differing("time.clock", 1, clock, NO_LOCAL),
    differing("time.date", 1, date, NO_LOCAL),
    differing("time.diff", 2, diff, NO_LOCAL),
    differing("time.format", 1, format, NO_LOCAL),
    host("time.parse_duration_ns", 1, crate::duration::parse_duration_ns),
    host("time.parse_ns", 2, parse_ns),
    host("time.parse_rfc3339_ns", 1, parse_rfc3339_ns),
    differing("time.weekday", 1, weekday, NO_LOCAL),
];

const NO_LOCAL: &str = "The time zone `Local` is unknown, so that a policy gives the same result on each node. Other time zones are built into the agent.";

const SECOND: i64 = 1_000_000_000;

const DAY: i64 = 86_400;

/// Work of finding a time zone and its offset at a time.
const ZONE: usize = 4_000;

/// The time zones bundled at build time; the node's files are not read.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time in a zone, as local date and time of day.
struct Moment {
    nanoseconds: i64,
    zone: TimeZone,
    layout: String,
    date: Date,
    /// Seconds since midnight.
    clock: i64,
    /// Seconds east of UTC.
    offset: i64,
}

impl Moment {
    /// Reads `ns`, `[ns, zone]` or `[ns, zone, layout]`.
    fn read(operands: Operands<'_>, position: usize, context: &Context) -> Result<Self, Fault> {
        context.work(ZONE)?;
        let wrong = || operands.wrong(position, "either number (ns) or [number (ns), string (tz)]");
        let (number, zone, layout) = match operands.any(position)? {
            Value::Number(number) => (number, "", ""),
            Value::Array(parts) => {
                let number = parts.first().and_then(Value::as_number).ok_or_else(wrong)?;
                let text = |index: usize| match parts.get(index) {
                    Some(part) => part.as_str().ok_or_else(wrong),
                    None => Ok(""),
                };
                (number, text(1)?, text(2)?)
            }
            _ => return Err(wrong()),
        };
        let zone = match zone {
            "" | "UTC" => TimeZone::UTC,
            name => zone_named(name)?,
        };
        context.work(number.text_bytes().saturating_mul(256))?;
        let nanoseconds = whole(number).ok_or("timestamp too big")?;
        let offset = offset_at(&zone, nanoseconds.div_euclid(SECOND));
        let seconds = nanoseconds.div_euclid(SECOND) + offset;
        Ok(Self {
            nanoseconds,
            zone,
            layout: layout.to_owned(),
            date: date_of(seconds.div_euclid(DAY)).ok_or("timestamp too big")?,
            clock: seconds.rem_euclid(DAY),
            offset,
        })
    }

    fn hour(&self) -> i64 {
        self.clock / 3_600
    }

    fn minute(&self) -> i64 {
        self.clock / 60 % 60
    }

    fn second(&self) -> i64 {
        self.clock % 60
    }

    fn weekday(&self) -> &'static str {
        let index = usize::try_from(self.date.weekday().to_sunday_zero_offset()).unwrap_or(0);
        WEEKDAYS.get(index).copied().unwrap_or_default()
    }
}

/// Days since 1970.
pub(crate) fn days(date: Date) -> i64 {
    // Dates are at most 20 000 years apart, so the span does not overflow.
    date.since(Date::constant(1970, 1, 1)).map(|span| i64::from(span.get_days())).unwrap_or_default()
}

fn date_of(days: i64) -> Option<Date> {
    let span = jiff::Span::new().try_days(days).ok()?;
    Date::constant(1970, 1, 1).checked_add(span).ok()
}

fn zone_named(name: &str) -> Result<TimeZone, Fault> {
    let unknown = || Fault::from(format!("unknown time zone {}", excerpt(name)));
    let zone = ZONES.get(name).map_err(|_| unknown())?;
    // The lookup ignores letter case; Go requires the exact spelling.
    if zone.iana_name() == Some(name) { Ok(zone) } else { Err(unknown()) }
}

fn info_at(zone: &TimeZone, seconds: i64) -> Option<tz::TimeZoneOffsetInfo<'_>> {
    Some(zone.to_offset_info(Timestamp::from_second(seconds).ok()?))
}

fn offset_at(zone: &TimeZone, seconds: i64) -> i64 {
    info_at(zone, seconds).map_or(0, |info| i64::from(info.offset().seconds()))
}

/// A 64-bit integer in any notation: OPA accepts `1e9` here.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| number.to_big_int()?.try_into().ok())
}

/// Nanoseconds as a result; a fault if they do not fit in 64 bits.
fn in_range(nanoseconds: i128) -> Outcome {
    match i64::try_from(nanoseconds) {
        Ok(nanoseconds) => Ok(Some(Value::from(nanoseconds))),
        Err(_) => Err("time outside of valid range".into()),
    }
}

fn date(arguments: &[Value], context: &Context) -> Outcome {
    let moment = Moment::read(Operands(arguments), 0, context)?;
    let date = moment.date;
    Ok(Some(Value::Array(
        [date.year().into(), date.month().into(), date.day().into()].map(|field: i64| Value::from(field)).to_vec(),
    )))
}

fn clock(arguments: &[Value], context: &Context) -> Outcome {
    let moment = Moment::read(Operands(arguments), 0, context)?;
    Ok(Some(Value::Array([moment.hour(), moment.minute(), moment.second()].map(Value::from).to_vec())))
}

fn weekday(arguments: &[Value], context: &Context) -> Outcome {
    Ok(Some(Value::from(Moment::read(Operands(arguments), 0, context)?.weekday())))
}

fn add_date(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let moment = Moment::read(operands, 0, context)?;
    let outside = || Fault::from("time outside of valid range");
    let add = |one: i64, other: i64| one.checked_add(other).ok_or_else(outside);
    let year = add(moment.date.year().into(), operands.integer(1)?)?;
    let month = add(i64::from(moment.date.month()) - 1, operands.integer(2)?)?;
    let day = add(i64::from(moment.date.day()) - 1, operands.integer(3)?)?;
    let year = i16::try_from(add(year, month.div_euclid(12))?).map_err(|_| outside())?;
    let month = i8::try_from(month.rem_euclid(12) + 1).map_err(|_| outside())?;
    let first = Date::new(year, month, 1).map_err(|_| outside())?;
    let seconds = add(days(first), day)?.checked_mul(DAY).ok_or_else(outside)?;
    let mut seconds = add(seconds, moment.clock)?;
    // Where daylight saving time changes, some local times occur twice and others never. Like Go, this code takes the
    // offset at the time read as UTC, and then the offset at the time that results from it.
    let first_guess = offset_at(&moment.zone, seconds);
    if first_guess != 0 {
        seconds = add(seconds, -offset_at(&moment.zone, add(seconds, -first_guess)?))?;
    }
    in_range(i128::from(seconds) * i128::from(SECOND) + i128::from(moment.nanoseconds.rem_euclid(SECOND)))
}

fn diff(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (one, mut other) = (Moment::read(operands, 0, context)?, Moment::read(operands, 1, context)?);
    if one.zone != other.zone {
        let zone = one.zone.iana_name().unwrap_or_default();
        let other_in_zone = Value::Array(vec![Value::from(other.nanoseconds), Value::from(zone)]);
        other = Moment::read(Operands(&[other_in_zone]), 0, context)?;
    }
    let (from, to) = if one.nanoseconds > other.nanoseconds { (other, one) } else { (one, other) };
    let mut years = i64::from(to.date.year()) - i64::from(from.date.year());
    let mut months = i64::from(to.date.month()) - i64::from(from.date.month());
    let mut days = i64::from(to.date.day()) - i64::from(from.date.day());
    let mut hours = to.hour() - from.hour();
    let mut minutes = to.minute() - from.minute();
    let mut seconds = to.second() - from.second();
    // Each negative part borrows from the next larger one.
    if seconds < 0 {
        seconds += 60;
        minutes -= 1;
    }
    if minutes < 0 {
        minutes += 60;
        hours -= 1;
    }
    if hours < 0 {
        hours += 24;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(from.date.days_in_month());
        months -= 1;
    }
    if months < 0 {
        months += 12;
        years -= 1;
    }
    Ok(Some(Value::Array([years, months, days, hours, minutes, seconds].map(Value::from).to_vec())))
}

fn parse_ns(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let layout = layout::named(operands.text(0)?);
    context.work(layout.len().saturating_mul(2 * layout::WORK))?;
    in_range(parse(layout, operands.text(1)?)?)
}

fn parse_rfc3339_ns(arguments: &[Value], _: &Context) -> Outcome {
    in_range(parse(layout::RFC3339, Operands(arguments).text(0)?)?)
}

fn format(arguments: &[Value], context: &Context) -> Outcome {
    let moment = Moment::read(Operands(arguments), 0, context)?;
    let mut rest = match moment.layout.as_str() {
        "" => layout::RFC3339_NANO,
        layout => layout::named(layout),
    };
    context.work(rest.len().saturating_mul(layout::WORK))?;
    let mut text = Text::of_call(context);
    loop {
        let (prefix, chunk, suffix) = layout::next(rest);
        text.push_str(prefix)?;
        let Some(chunk) = chunk else { break };
        context.work(200)?;
        text.push_str(&moment.written(chunk))?;
        rest = suffix;
    }
    Ok(Some(Value::from(text.take())))
}

impl Moment {
    fn written(&self, chunk: Chunk) -> String {
        let date = self.date;
        let month =
            usize::try_from(date.month() - 1).ok().and_then(|index| MONTHS.get(index)).copied().unwrap_or_default();
        let hour12 = (self.hour() + 11) % 12 + 1;
        let is_morning = self.hour() < 12;
        match chunk {
            Chunk::Year => format!("{:02}", date.year().unsigned_abs() % 100),
            Chunk::LongYear => format!("{:04}", date.year()),
            Chunk::Month => short(month),
            Chunk::LongMonth => month.to_owned(),
            Chunk::NumberMonth => date.month().to_string(),
            Chunk::ZeroMonth => format!("{:02}", date.month()),
            Chunk::Weekday => short(self.weekday()),
            Chunk::LongWeekday => self.weekday().to_owned(),
            Chunk::Day => date.day().to_string(),
            Chunk::BlankDay => format!("{:2}", date.day()),
            Chunk::ZeroDay => format!("{:02}", date.day()),
            Chunk::BlankDayOfYear => format!("{:3}", date.day_of_year()),
            Chunk::ZeroDayOfYear => format!("{:03}", date.day_of_year()),
            Chunk::Hour => format!("{:02}", self.hour()),
            Chunk::Hour12 => hour12.to_string(),
            Chunk::ZeroHour12 => format!("{hour12:02}"),
            Chunk::Minute => self.minute().to_string(),
            Chunk::ZeroMinute => format!("{:02}", self.minute()),
            Chunk::Second => self.second().to_string(),
            Chunk::ZeroSecond => format!("{:02}", self.second()),
            Chunk::Noon => if is_morning { "AM" } else { "PM" }.to_owned(),
            Chunk::SmallNoon => if is_morning { "am" } else { "pm" }.to_owned(),
            Chunk::Zone => self.zone_name(),
            Chunk::Offset { zulu: true, .. } if self.offset == 0 => "Z".to_owned(),
            Chunk::Offset { form, .. } => self.offset_text(form),
            Chunk::Fraction { digits, separator } => self.fraction(digits, separator),
            Chunk::TrimmedFraction { digits, separator } => {
                let fraction = self.fraction(digits, separator);
                fraction.trim_end_matches('0').trim_end_matches(separator).to_owned()
            }
        }
    }

    fn zone_name(&self) -> String {
        let info = info_at(&self.zone, self.nanoseconds.div_euclid(SECOND));
        info.map_or_else(|| "UTC".to_owned(), |info| info.abbreviation().to_owned())
    }

    fn offset_text(&self, form: OffsetForm) -> String {
        // Go drops the seconds before it determines the sign.
        let minutes = self.offset / 60;
        let sign = if minutes < 0 { '-' } else { '+' };
        let colon = if form.has_colons() { ":" } else { "" };
        let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
        match form {
            OffsetForm::Hours => format!("{sign}{hours:02}"),
            _ if form.has_seconds() => format!("{sign}{hours:02}{colon}{rest:02}{colon}{:02}", self.offset.abs() % 60),
            _ => format!("{sign}{hours:02}{colon}{rest:02}"),
        }
    }

    fn fraction(&self, digits: usize, separator: char) -> String {
        let nanoseconds = format!("{:09}", self.nanoseconds.rem_euclid(SECOND));
        format!("{separator}{}", nanoseconds.get(..digits).unwrap_or(&nanoseconds))
    }
}

fn short(name: &str) -> String {
    name.chars().take(3).collect()
}
