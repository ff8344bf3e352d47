//! JSON documents that keep the order of fields, repeated fields and the spelling of names.
//!
//! Configuration follows Go's decoder, which accepts field names in any letter case, uses the last of repeated fields and
//! merges repeated objects. A map type cannot represent that.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Maximum nesting depth of configuration: policies parse it recursively, on their own stacks.
pub(super) const MAX_DEPTH: usize = 64;

/// A JSON value that keeps the order of its fields and repeated names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    /// An object.
    Fields(Vec<(String, Document)>),
    /// A list.
    Items(Vec<Document>),
    /// Anything else.
    Scalar(Value),
}

impl Document {
    /// Parses JSON text. `serde_json` bounds the depth.
    ///
    /// # Errors
    ///
    /// Where and why the text is not JSON. An empty text is an error too.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Whether it is nested no deeper than [`MAX_DEPTH`].
    pub(super) fn is_shallow(&self) -> bool {
        fn within(document: &Document, levels: usize) -> bool {
            let Some(below) = levels.checked_sub(1) else { return false };
            match document {
                Document::Fields(fields) => fields.iter().all(|(_, value)| within(value, below)),
                Document::Items(items) => items.iter().all(|item| within(item, below)),
                Document::Scalar(_) => true,
            }
        }
        within(self, MAX_DEPTH)
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(Value::Null))
    }

    /// Converts to a plain value: the last of repeated fields wins, and objects of the same name are merged.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Fields(fields) => {
                let mut map = Map::new();
                for (name, value) in fields {
                    put(&mut map, name, value.into_value());
                }
                Value::Object(map)
            }
            Self::Items(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Self::Scalar(value) => value,
        }
    }

    /// The same document without repeated fields: of names that differ at most in letter case, the last counts, and objects of such names
    /// are merged.
    pub(super) fn with_one_spelling(self) -> Self {
        match self {
            Self::Fields(fields) => {
                let mut kept: Vec<Option<(String, Self)>> = Vec::with_capacity(fields.len());
                let mut places: BTreeMap<String, usize> = BTreeMap::new();
                for (name, value) in fields {
                    let earlier = places.insert(name.to_ascii_lowercase(), kept.len());
                    let earlier = earlier.and_then(|place| kept.get_mut(place)?.take());
                    let value = match (earlier, value) {
                        (Some((_, Self::Fields(mut earlier))), Self::Fields(later)) => {
                            earlier.extend(later);
                            Self::Fields(earlier)
                        }
                        (_, value) => value,
                    };
                    kept.push(Some((name, value)));
                }
                let once = kept.into_iter().flatten();
                Self::Fields(once.map(|(name, value)| (name, value.with_one_spelling())).collect())
            }
            Self::Items(items) => Self::Items(items.into_iter().map(Self::with_one_spelling).collect()),
            scalar => scalar,
        }
    }

    /// Like [`Self::into_value`], without fields that are `null`, since those count as absent. Lists stay unchanged.
    pub(super) fn without_nulls(self) -> Value {
        match self {
            Self::Fields(fields) => {
                let mut map = Map::new();
                for (name, value) in fields {
                    if value.is_null() {
                        map.remove(&name);
                    } else {
                        put(&mut map, name, value.without_nulls());
                    }
                }
                Value::Object(map)
            }
            other => other.into_value(),
        }
    }
}

/// Removes all fields of this name, in any letter case, from `fields`. The last one wins; the fields of several objects
/// are concatenated, so that reading them in order merges them. `None` also if the last is `null`.
pub(super) fn take(fields: &mut Vec<(String, Document)>, name: &str) -> Option<Document> {
    let mut found: Option<Document> = None;
    for (_, value) in fields.extract_if(.., |(key, _)| key.eq_ignore_ascii_case(name)) {
        found = match (found, value) {
            (Some(Document::Fields(mut old)), Document::Fields(new)) => {
                old.extend(new);
                Some(Document::Fields(old))
            }
            (_, value) => Some(value),
        };
    }
    found.filter(|value| !value.is_null())
}

/// Inserts a value; an object is merged into an existing object.
pub(super) fn put(map: &mut Map<String, Value>, name: String, value: Value) {
    match (map.get_mut(&name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (name, value) in new {
                put(old, name, value);
            }
        }
        (_, value) => {
            map.insert(name, value);
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Ok(Document::Items(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Document, A::Error> {
        let mut read = Vec::new();
        while let Some(field) = fields.next_entry()? {
            read.push(field);
        }
        Ok(Document::Fields(read))
    }
}
