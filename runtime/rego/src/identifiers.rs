//! `semver.*`, `uri.*` and `uuid.parse`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::builtin::{Fault, Outcome, excerpt};
use crate::go::url::Url;
use crate::operand::Operands;
use crate::table::{Entry, differing, host};
use crate::{Context, Value};

pub(crate) const ENTRIES: &[Entry] = &[
    host("semver.compare", 2, semver_compare),
    host("semver.is_valid", 1, semver_is_valid),
    host("uri.is_valid", 1, uri_is_valid),
    differing("uri.parse", 1, uri_parse, "The unescaped bytes have to be UTF-8; OPA's strings may hold any bytes."),
    host("uuid.parse", 1, uuid_parse),
];

/// A semantic version as OPA parses it: a leading `v` is accepted.
#[derive(Debug, PartialEq)]
struct Version<'a> {
    numbers: [i64; 3],
    pre_release: &'a str,
}

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, metadata) = text.split_once('+').map_or((text, None), |(text, metadata)| (text, Some(metadata)));
        let (text, pre_release) = text.split_once('-').map_or((text, None), |(text, pre)| (text, Some(pre)));
        let is_identifier =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let are_identifiers = |text: &str| text.split('.').all(is_identifier);
        let has_leading_zero = |text: &str| text.len() > 1 && text.starts_with('0') && is_number(text);
        if !metadata.is_none_or(are_identifiers)
            || !pre_release.is_none_or(|pre| are_identifiers(pre) && !pre.split('.').any(has_leading_zero))
        {
            return None;
        }
        let mut parts = text.split('.').map(|part| {
            if !is_number(part) || (part.len() > 1 && part.starts_with('0')) { None } else { part.parse().ok() }
        });
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        if parts.next().is_some() {
            return None;
        }
        Some(Self { numbers, pre_release: pre_release.unwrap_or("") })
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre_release, other.pre_release) {
            (one, other) if one == other => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (one, other) => one.split('.').map(Identifier::of).cmp(other.split('.').map(Identifier::of)),
        })
    }
}

/// A part of a pre-release; numbers sort before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(i64),
    Word(&'a str),
}

impl<'a> Identifier<'a> {
    fn of(text: &'a str) -> Self {
        // OPA uses the largest 64-bit number for any larger one.
        if is_number(text) { Self::Number(text.parse().unwrap_or(i64::MAX)) } else { Self::Word(text) }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn semver_is_valid(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).any(0)?.as_str();
    Ok(Some(Value::Bool(text.and_then(Version::parse).is_some())))
}

fn semver_compare(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let version = |position: usize| {
        let text = operands.text(position)?;
        Version::parse(text).ok_or_else(|| {
            let position = position.saturating_add(1);
            Fault::from(format!("operand {position}: string {} is not a valid SemVer", excerpt(text)))
        })
    };
    Ok(Some(Value::from(match version(0)?.cmp(&version(1)?) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })))
}

fn uri_is_valid(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).any(0)?.as_str();
    Ok(Some(Value::Bool(text.is_some_and(|text| !text.is_empty() && Url::parse(text).is_ok()))))
}

fn uri_parse(arguments: &[Value], _: &Context) -> Outcome {
    let url = Url::parse(Operands(arguments).text(0)?)?;
    let fields = [
        ("scheme", url.scheme),
        ("hostname", url.hostname),
        ("port", url.port),
        ("path", url.path),
        ("raw_path", url.raw_path),
        ("raw_query", url.raw_query),
        ("fragment", url.fragment),
    ];
    let fields = fields.into_iter().filter(|(_, field)| !field.is_empty());
    Ok(Some(Value::Object(fields.map(|(name, field)| (Value::from(name), Value::from(field))).collect())))
}

/// The fields of a UUID; undefined if the text is not a UUID.
fn uuid_parse(arguments: &[Value], _: &Context) -> Outcome {
    let Some(bytes) = uuid_bytes(Operands(arguments).text(0)?) else { return Ok(None) };
    let field = |from: usize, count: usize| {
        bytes.iter().skip(from).take(count).fold(0_i64, |so_far, byte| so_far << 8 | i64::from(*byte))
    };
    let version = field(6, 1) >> 4;
    let variant = match field(8, 1) {
        byte if byte & 0xc0 == 0x80 => "RFC4122",
        byte if byte & 0xe0 == 0xc0 => "Microsoft",
        byte if byte & 0xe0 == 0xe0 => "Future",
        _ => "Reserved",
    };
    let mut fields = BTreeMap::from([("version", Value::from(version)), ("variant", Value::from(variant))]);
    if matches!(version, 1 | 2) {
        // Units of 100 ns since the calendar reform of 1582.
        let time = (field(6, 2) & 0xfff) << 48 | field(4, 2) << 32 | field(0, 4);
        let node: Vec<String> = bytes.iter().skip(10).map(|byte| format!("{byte:02x}")).collect();
        fields.insert("time", Value::from((time - 122_192_928_000_000_000).wrapping_mul(100)));
        fields.insert("nodeid", Value::from(node.join("-")));
        fields.insert("clocksequence", Value::from(field(8, 2) & 0x3fff));
        let kind = match field(10, 1) & 0b11 {
            0b11 => "local:multicast",
            0b01 => "global:multicast",
            0b10 => "local:unicast",
            _ => "global:unicast",
        };
        fields.insert("macvariables", Value::from(kind));
    }
    if version == 2 {
        let domain = match field(9, 1) {
            0 => "Person".to_owned(),
            1 => "Group".to_owned(),
            2 => "Org".to_owned(),
            other => format!("Domain{other}"),
        };
        fields.insert("id", Value::from(field(0, 4)));
        fields.insert("domain", Value::from(domain));
    }
    Ok(Some(Value::Object(fields.into_iter().map(|(name, field)| (Value::from(name), field)).collect())))
}

/// The bytes of `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, bare, in braces, after `urn:uuid:` or without hyphens.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let bare = match text.len() {
        45 => text.get(9..).filter(|_| text.get(..9).is_some_and(|urn| urn.eq_ignore_ascii_case("urn:uuid:")))?,
        // Any characters are accepted in place of the braces.
        38 => text.get(1..37)?,
        36 => text,
        32 => return u128::from_str_radix(hexadecimal(text)?, 16).ok().map(u128::to_be_bytes),
        _ => return None,
    };
    if ![8, 13, 18, 23].iter().all(|at| bare.as_bytes().get(*at) == Some(&b'-')) {
        return None;
    }
    let digits = bare.replace('-', "");
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(hexadecimal(&digits)?, 16).ok().map(u128::to_be_bytes)
}

fn hexadecimal(text: &str) -> Option<&str> {
    Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
