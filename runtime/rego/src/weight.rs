//! The weight of a value: its bytes of memory, rounded up.

use crate::Value;

/// Bytes of an element of an array, which may have grown by doubling.
pub(crate) const ELEMENT: usize = 64;

/// Bytes of the allocator's overhead for a string or a long number.
pub(crate) const TEXT: usize = 16;

/// Bytes of a non-empty set of at most [`NODE`] elements, one node of the tree.
const SET: usize = 368;
/// Bytes of a non-empty object of at most [`NODE`] pairs, one node of the tree.
const OBJECT: usize = 720;
/// Number of pairs in a full node of the tree.
const NODE: usize = 11;

pub(crate) fn set(elements: usize) -> usize {
    if elements <= NODE { SET * elements.min(1) } else { elements.saturating_mul(96) }
}

pub(crate) fn object(pairs: usize) -> usize {
    if pairs <= NODE { OBJECT * pairs.min(1) } else { pairs.saturating_mul(192) }
}

/// The weight that the next element or pair adds.
pub(crate) fn one_more(elements: usize, all: fn(usize) -> usize) -> usize {
    all(elements.saturating_add(1)).saturating_sub(all(elements))
}

/// Like [`Value::weight`], without the value's place in its collection.
fn inner(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 0,
        Value::Number(number) => number.text_bytes(),
        Value::String(text) if text.is_empty() => 0,
        Value::String(text) => text.len().saturating_add(TEXT),
        Value::Array(elements) => all(elements).saturating_add(elements.len().saturating_mul(ELEMENT)),
        Value::Set(elements) => all(elements).saturating_add(set(elements.len())),
        Value::Object(pairs) => {
            let both = |(key, value)| inner(key).saturating_add(inner(value));
            pairs.iter().map(both).fold(object(pairs.len()), usize::saturating_add)
        }
    }
}

fn all<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    values.into_iter().map(inner).fold(0, usize::saturating_add)
}

impl Value {
    /// The value's bytes of memory, rounded up.
    pub(crate) fn weight(&self) -> usize {
        inner(self).saturating_add(ELEMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_grows_with_what_a_value_holds() {
        assert!(size_of::<Value>() <= ELEMENT / 2, "{}", size_of::<Value>());
        for (light, heavy) in [
            ("null", r#""a""#),
            (r#""a""#, r#""aa""#),
            ("1", "1.00000000000000000000"),
            ("[1]", "[1, 2]"),
            ("[]", "[[]]"),
            ("[1]", "{1}"),
            ("{1}", "{1: 1}"),
            ("[{1}]", "[{1}, {1}]"),
        ] {
            let weight = |text| Value::parse(text).unwrap().weight();
            assert!(weight(light) < weight(heavy), "{light} {heavy}");
        }
    }
}
