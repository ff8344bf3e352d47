//! Parsing and escaping of URLs as by Go's net/url.

use std::net::Ipv6Addr;

use crate::builtin::{Fault, excerpt};
use crate::limit;
use crate::operand::too_long;

/// A part of a URL; each part has its own set of characters that need no escape.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Path,
    Host,
    Zone,
    User,
    /// A key or a value of a query, where `+` is a blank.
    Query,
    Fragment,
}

/// The parts that `uri.parse` returns.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) hostname: String,
    pub(crate) port: String,
    pub(crate) path: String,
    /// The path as it was written, if it differs from the default encoding of `path`; else the path.
    pub(crate) raw_path: String,
    pub(crate) raw_query: String,
    pub(crate) fragment: String,
}

impl Url {
    /// Parses a URL or a relative reference.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::without_fragment(before)?;
        url.fragment = utf8(unescaped(fragment, Part::Fragment)?)?;
        Ok(url)
    }

    fn without_fragment(text: &str) -> Result<Self, Fault> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        let mut url = Self::default();
        if text == "*" {
            url.path = text.to_owned();
            url.raw_path = text.to_owned();
            return Ok(url);
        }
        let (scheme, rest) = scheme(text)?;
        url.scheme = scheme.to_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.raw_query = query.to_owned();
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                // The rest is opaque.
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let has_authority = rest.starts_with("//") && (!url.scheme.is_empty() || !rest.starts_with("///"));
        let path = match rest.strip_prefix("//") {
            Some(authority) if has_authority => {
                let end = authority.find('/').unwrap_or(authority.len());
                let (authority, path) = authority.split_at_checked(end).unwrap_or((authority, ""));
                url.authority(authority)?;
                path
            }
            _ => rest,
        };
        let unescaped = unescaped(path, Part::Path)?;
        let is_usual = escaped(&unescaped, Part::Path) == path;
        url.path = utf8(unescaped)?;
        url.raw_path = if is_usual { url.path.clone() } else { path.to_owned() };
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), Fault> {
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
                if !user.chars().all(is_allowed) {
                    return Err("net/url: invalid userinfo".into());
                }
                unescaped(user, Part::User)?;
                host
            }
            None => authority,
        };
        let host = self.host(host)?;
        // The last colon separates the port if only digits follow it.
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
            _ => (host.as_str(), ""),
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        self.hostname = bare.unwrap_or(name).to_owned();
        self.port = port.to_owned();
        Ok(())
    }

    /// Host and port, unescaped.
    fn host(&self, host: &str) -> Result<String, Fault> {
        let check_port = |port: &str| match port.strip_prefix(':') {
            _ if port.is_empty() => Ok(()),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
            _ => Err(Fault::from(format!("invalid port {:?} after host", excerpt(port)))),
        };
        match host.rfind('[') {
            Some(0) => {
                let inner = host.get(1..).unwrap_or_default();
                let (name, port) = inner.rsplit_once(']').ok_or("missing ']' in host")?;
                check_port(port)?;
                let (address, zone) = name.find("%25").and_then(|at| name.split_at_checked(at)).unwrap_or((name, ""));
                let address = utf8(unescaped(address, Part::Host)?)?;
                let zone = utf8(unescaped(zone, Part::Zone)?)?;
                if address.parse::<Ipv6Addr>().is_err() || zone == "%" {
                    return Err("invalid host".into());
                }
                return Ok(format!("[{address}{zone}]{port}"));
            }
            Some(_) => return Err("invalid IP-literal".into()),
            None => {}
        }
        // Only `http` and `https` are strict about colons in the host.
        let is_strict = matches!(self.scheme.as_str(), "http" | "https");
        let port = if is_strict { host.find(':') } else { host.rfind(':') };
        check_port(port.and_then(|at| host.get(at..)).unwrap_or_default())?;
        utf8(unescaped(host, Part::Host)?)
    }
}

/// The scheme, empty if there is none, and the text after its colon.
fn scheme(text: &str) -> Result<(&str, &str), Fault> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".into()),
            ':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => break,
        }
    }
    Ok(("", text))
}

/// A text, escaped as a key or value of a query.
pub(crate) fn query_escaped(text: &str) -> Result<String, Fault> {
    if text.len() > limit::TEXT_BYTES / 3 {
        return Err(too_long());
    }
    Ok(escaped(text.as_bytes(), Part::Query))
}

fn escaped(bytes: &[u8], part: Part) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte == b' ' && part == Part::Query {
            text.push('+');
        } else if is_plain(byte, part) {
            text.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
            text.extend(['%', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
    text
}

/// The unescaped bytes of a part of a URL.
pub(crate) fn unescaped(text: &str, part: Part) -> Result<Vec<u8>, Fault> {
    let invalid = |escape: &[u8]| Fault::from(format!("invalid URL escape {:?}", String::from_utf8_lossy(escape)));
    let digit =
        |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).and_then(|it| u8::try_from(it).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'%' => {
                let escape = rest.get(..3).unwrap_or(rest);
                let high = digit(escape.get(1)).ok_or_else(|| invalid(escape))?;
                let low = digit(escape.get(2)).ok_or_else(|| invalid(escape))?;
                let escaped = high << 4 | low;
                let is_allowed = match part {
                    _ if escape == b"%25" => true,
                    // In a host, only bytes beyond ASCII may be escaped.
                    Part::Host => high >= 8,
                    Part::Zone => escaped == b' ' || is_plain(escaped, Part::Host),
                    _ => true,
                };
                if !is_allowed {
                    return Err(invalid(escape));
                }
                bytes.push(escaped);
                rest = rest.get(3..).unwrap_or_default();
                continue;
            }
            b'+' if part == Part::Query => bytes.push(b' '),
            _ if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && !is_plain(byte, part) => {
                return Err(format!("invalid character {:?} in host name", char::from(byte).to_string()).into());
            }
            _ => bytes.push(byte),
        }
        rest = after;
    }
    Ok(bytes)
}

/// Whether a byte needs no escape.
fn is_plain(byte: u8, part: Part) -> bool {
    let is_unreserved = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    is_unreserved
        || match part {
            Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            Part::Path => b"$&+,/:;=@".contains(&byte),
            Part::User => b"$&+,;=".contains(&byte),
            Part::Query => false,
            Part::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
}

fn utf8(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| "what is escaped is not UTF-8".into())
}
