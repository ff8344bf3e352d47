//! Rego's values.

use std::collections::{BTreeMap, BTreeSet};

use crate::Number;

/// A value of Rego: JSON's values and sets. Keys of objects may be any value.
///
/// Ordered as in OPA: null, booleans, numbers, strings, arrays, objects, sets; strings by their bytes, arrays and sets by
/// their elements, objects by their sorted pairs. Numbers are compared by value: `1`, `1.0` and `1e0` are equal.
///
/// Strings are UTF-8. OPA's strings may hold any bytes; functions that would create such a string fail instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, exact.
    Number(Number),
    /// Text.
    String(String),
    /// `[..]`.
    Array(Vec<Value>),
    /// `{key: value, ..}`.
    Object(BTreeMap<Value, Value>),
    /// `{element, ..}`, or `set()`.
    Set(BTreeSet<Value>),
}

impl Value {
    /// The name of the value's type, as in Rego's `type_name` and OPA's messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
            Self::Set(_) => "set",
        }
    }

    /// The text of a string; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean; `None` for other types.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The number; `None` for other types.
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The elements of an array; `None` for other types.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The pairs of an object; `None` for other types.
    pub fn as_object(&self) -> Option<&BTreeMap<Value, Value>> {
        match self {
            Self::Object(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The elements of a set; `None` for other types.
    pub fn as_set(&self) -> Option<&BTreeSet<Value>> {
        match self {
            Self::Set(elements) => Some(elements),
            _ => None,
        }
    }

    /// The value of an object's key; `None` if there is none.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(&Self::from(key))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<Vec<Value>> for Value {
    fn from(elements: Vec<Value>) -> Self {
        Self::Array(elements)
    }
}

impl From<BTreeMap<Value, Value>> for Value {
    fn from(pairs: BTreeMap<Value, Value>) -> Self {
        Self::Object(pairs)
    }
}

impl From<BTreeSet<Value>> for Value {
    fn from(elements: BTreeSet<Value>) -> Self {
        Self::Set(elements)
    }
}
