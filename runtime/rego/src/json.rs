//! JSON, as lossless text and through serde.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::text::quoted;
use crate::{Number, Value, limit};

impl Value {
    /// Compact JSON. Numbers stay as they were written, sets become sorted arrays, and keys that are not strings become
    /// strings with their JSON.
    ///
    /// Each level of such keys within keys doubles the escapes. For values from a policy use [`Value::to_json_within`].
    pub fn to_json(&self) -> String {
        self.to_json_within(usize::MAX).unwrap_or_default()
    }

    /// Like [`Value::to_json`]; `None` if the text would be longer than `most` bytes.
    pub fn to_json_within(&self, most: usize) -> Option<String> {
        let mut text = Bounded { text: String::new(), most };
        self.write_json(&mut text).ok().map(|()| text.text)
    }

    fn write_json(&self, to: &mut Bounded) -> fmt::Result {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => write!(to, "{self}"),
            Self::String(text) => quoted(text, to),
            Self::Array(elements) => list(elements, to),
            Self::Set(elements) => list(elements, to),
            Self::Object(pairs) => {
                to.write_char('{')?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    if index > 0 {
                        to.write_char(',')?;
                    }
                    quoted(&key.as_json_key(to.left()).ok_or(fmt::Error)?, to)?;
                    to.write_char(':')?;
                    value.write_json(to)?;
                }
                to.write_char('}')
            }
        }
    }

    /// The text of an object's key; `None` if it would be longer than `most` bytes.
    fn as_json_key(&self, most: usize) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::String(text) => Some(text.into()),
            other => other.to_json_within(most).map(Into::into),
        }
    }
}

/// A text of bounded length.
struct Bounded {
    text: String,
    most: usize,
}

impl Bounded {
    fn left(&self) -> usize {
        self.most.saturating_sub(self.text.len())
    }
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if part.len() > self.left() {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

fn list<'a>(elements: impl IntoIterator<Item = &'a Value>, to: &mut Bounded) -> fmt::Result {
    to.write_char('[')?;
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            to.write_char(',')?;
        }
        element.write_json(to)?;
    }
    to.write_char(']')
}

/// Like [`Value::to_json`], but a number that is not a 64-bit integer becomes the nearest float.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Number(number) => match (number.as_i64(), number.to_string().parse()) {
                (Some(whole), _) => serializer.serialize_i64(whole),
                (None, Ok(whole)) => serializer.serialize_u64(whole),
                (None, Err(_)) => serializer.serialize_f64(number.as_f64()),
            },
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(elements) => serializer.collect_seq(elements),
            Self::Set(elements) => serializer.collect_seq(elements),
            Self::Object(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    let key = key.as_json_key(limit::TEXT_BYTES);
                    let key = key.ok_or_else(|| serde::ser::Error::custom("a key is too long"))?;
                    map.serialize_entry(&key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        Number::parse(&number.to_string()).map(Value::Number).ok_or_else(|| E::custom("not a number of JSON"))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("not a number of JSON"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((key, value)) = pairs.next_entry::<String, Value>()? {
            object.insert(Value::String(key), value);
        }
        Ok(Value::Object(object))
    }
}
