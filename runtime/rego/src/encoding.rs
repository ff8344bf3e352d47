//! `hex.*`, `base64url.encode_no_pad`, `urlquery.*` and `crypto.*` of digests.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use crate::builtin::{Fault, Outcome};
use crate::context::Text;
use crate::documents::key_json;
use crate::go::url;
use crate::operand::{Elements, Operands, too_long};
use crate::table::{Entry, differing, host};
use crate::{Context, Value, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[
    host("base64url.encode_no_pad", 1, base64url_encode_no_pad),
    host("crypto.hmac.equal", 2, hmac_equal),
    host("crypto.hmac.md5", 2, |arguments, _| hmac::<Hmac<Md5>>(arguments)),
    host("crypto.hmac.sha1", 2, |arguments, _| hmac::<Hmac<Sha1>>(arguments)),
    host("crypto.hmac.sha256", 2, |arguments, _| hmac::<Hmac<Sha256>>(arguments)),
    host("crypto.hmac.sha512", 2, |arguments, _| hmac::<Hmac<Sha512>>(arguments)),
    host("crypto.md5", 1, |arguments, _| digest::<Md5>(arguments)),
    host("crypto.sha1", 1, |arguments, _| digest::<Sha1>(arguments)),
    host("crypto.sha256", 1, |arguments, _| digest::<Sha256>(arguments)),
    differing("hex.decode", 1, hex_decode, NO_BYTES),
    host("hex.encode", 1, hex_encode),
    differing("urlquery.decode", 1, urlquery_decode, NO_BYTES),
    differing("urlquery.decode_object", 1, urlquery_decode_object, NO_BYTES),
    host("urlquery.encode", 1, urlquery_encode),
    host("urlquery.encode_object", 1, urlquery_encode_object),
];

const NO_BYTES: &str = "The decoded bytes have to be UTF-8; OPA's strings may hold any bytes.";

/// Maximum number of parameters that Go accepts in one query.
const MAX_PARAMETERS: usize = 10_000;

fn digest<D: Digest>(arguments: &[Value]) -> Outcome {
    Ok(Some(Value::from(hex(&D::digest(Operands(arguments).text(0)?)))))
}

fn hmac<M: Mac + KeyInit>(arguments: &[Value]) -> Outcome {
    let operands = Operands(arguments);
    let (message, key) = (operands.text(0)?, operands.text(1)?);
    let mut mac = <M as KeyInit>::new_from_slice(key.as_bytes()).map_err(|_| "the key has no usable length")?;
    mac.update(message.as_bytes());
    Ok(Some(Value::from(hex(&mac.finalize().into_bytes()))))
}

fn hmac_equal(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (one, other) = (operands.text(0)?, operands.text(1)?);
    // Takes the same time regardless of where the texts differ.
    let differences = one.bytes().zip(other.bytes()).fold(0, |so_far, (one, other)| so_far | (one ^ other));
    Ok(Some(Value::Bool(one.len() == other.len() && differences == 0)))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().map_or('0', char::from);
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
    text
}

fn hex_encode(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?;
    if text.len() > limit::TEXT_BYTES / 2 {
        return Err(too_long());
    }
    Ok(Some(Value::from(hex(text.as_bytes()))))
}

fn hex_decode(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Ok(digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low).ok_or("invalid byte")?),
        _ => Err(Fault::from("odd length hex string")),
    });
    Ok(Some(Value::from(utf8(bytes.collect::<Result<_, _>>()?)?)))
}

/// Converts bytes to text; a fault if they are not UTF-8.
fn utf8(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| "what is decoded is not UTF-8".into())
}

fn base64url_encode_no_pad(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?;
    if text.len() > limit::TEXT_BYTES / 4 * 3 {
        return Err(too_long());
    }
    Ok(Some(Value::from(URL_SAFE_NO_PAD.encode(text))))
}

fn urlquery_encode(arguments: &[Value], _: &Context) -> Outcome {
    Ok(Some(Value::from(url::query_escaped(Operands(arguments).text(0)?)?)))
}

fn urlquery_decode(arguments: &[Value], _: &Context) -> Outcome {
    Ok(Some(Value::from(decoded(Operands(arguments).text(0)?)?)))
}

fn decoded(text: &str) -> Result<String, Fault> {
    utf8(url::unescaped(text, url::Part::Query)?)
}

fn urlquery_encode_object(arguments: &[Value], context: &Context) -> Outcome {
    let wrong = || Fault::from("operand 1 values must be string, array[string], or set[string]");
    // Keys are ordered by their texts.
    let mut parameters: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, value) in Operands(arguments).object(0)? {
        let key = match key {
            Value::String(text) => text.clone(),
            other => key_json(other, context)?,
        };
        context.charge(key.len().saturating_mul(4).saturating_add(192))?;
        context.work_on(key.len().saturating_mul(8).saturating_add(192))?;
        let values = match value {
            Value::String(text) => vec![text.as_str()],
            other => {
                let values = Elements::of(other).ok_or_else(wrong)?;
                values.iter().map(|value| value.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?
            }
        };
        parameters.insert(key, values);
    }
    let mut query = Text::of_call(context);
    let mut is_first = true;
    for (key, values) in parameters {
        let key = url::query_escaped(&key)?;
        for value in values {
            if is_first {
                is_first = false;
            } else {
                query.push('&')?;
            }
            query.push_str(&key)?;
            query.push('=')?;
            context.charge(value.len().saturating_mul(3))?;
            context.work_on(value.len().saturating_mul(8))?;
            query.push_str(&url::query_escaped(value)?)?;
        }
    }
    Ok(Some(Value::from(query.take())))
}

fn urlquery_decode_object(arguments: &[Value], context: &Context) -> Outcome {
    let query = Operands(arguments).text(0)?;
    if query.matches('&').count() >= MAX_PARAMETERS {
        return Err("the query has too many parameters".into());
    }
    let mut object: BTreeMap<Value, Value> = BTreeMap::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        if parameter.contains(';') {
            return Err("invalid semicolon separator in query".into());
        }
        let weight = parameter.len().saturating_mul(2).saturating_add(192 + 4 * weight::ELEMENT);
        context.charge(weight)?;
        context.work_on(weight.saturating_mul(2))?;
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (key, value) = (Value::from(decoded(key)?), Value::from(decoded(value)?));
        match object.get_mut(&key) {
            Some(Value::Array(values)) => values.push(value),
            _ => {
                object.insert(key, Value::Array(vec![value]));
            }
        }
    }
    Ok(Some(Value::Object(object)))
}
