//! Typed access to the arguments of a call, with OPA's messages for wrong types.

use std::collections::{BTreeMap, BTreeSet};

use crate::builtin::Fault;
use crate::{Number, Value, limit};

/// The arguments of one call; positions count from 0, OPA's messages from 1.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a>(pub(crate) &'a [Value]);

impl<'a> Operands<'a> {
    pub(crate) fn any(self, position: usize) -> Result<&'a Value, Fault> {
        self.0.get(position).ok_or_else(|| format!("operand {} is missing", position.saturating_add(1)).into())
    }

    pub(crate) fn text(self, position: usize) -> Result<&'a str, Fault> {
        self.any(position)?.as_str().ok_or_else(|| self.wrong(position, "string"))
    }

    pub(crate) fn number(self, position: usize) -> Result<&'a Number, Fault> {
        self.any(position)?.as_number().ok_or_else(|| self.wrong(position, "number"))
    }

    /// A 64-bit integer.
    pub(crate) fn integer(self, position: usize) -> Result<i64, Fault> {
        let number = self.number(position)?;
        number.as_i64().ok_or_else(|| {
            let position = position.saturating_add(1);
            format!("operand {position} must be integer number but got floating-point number").into()
        })
    }

    pub(crate) fn array(self, position: usize) -> Result<&'a [Value], Fault> {
        self.any(position)?.as_array().ok_or_else(|| self.wrong(position, "array"))
    }

    pub(crate) fn object(self, position: usize) -> Result<&'a BTreeMap<Value, Value>, Fault> {
        self.any(position)?.as_object().ok_or_else(|| self.wrong(position, "object"))
    }

    /// The elements of an array or a set.
    pub(crate) fn elements(self, position: usize) -> Result<Elements<'a>, Fault> {
        Elements::of(self.any(position)?).ok_or_else(|| self.wrong(position, "one of {array, set}"))
    }

    /// A single text, or the texts of an array or a set.
    pub(crate) fn texts(self, position: usize) -> Result<Vec<&'a str>, Fault> {
        if let Value::String(text) = self.any(position)? {
            return Ok(vec![text]);
        }
        let elements =
            Elements::of(self.any(position)?).ok_or_else(|| self.wrong(position, "one of {string, set, array}"))?;
        let texts: Option<Vec<&str>> = elements.iter().map(Value::as_str).collect();
        texts.ok_or_else(|| self.wrong(position, "a collection of strings"))
    }

    /// The fault for an argument of a wrong type.
    pub(crate) fn wrong(self, position: usize, expected: &str) -> Fault {
        let got = self.0.get(position).map_or("nothing", Value::type_name);
        format!("operand {} must be {expected} but got {got}", position.saturating_add(1)).into()
    }
}

/// The elements of an array or a set.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    Array(&'a [Value]),
    Set(&'a BTreeSet<Value>),
}

impl<'a> Elements<'a> {
    pub(crate) fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(elements) => Some(Self::Array(elements)),
            Value::Set(elements) => Some(Self::Set(elements)),
            _ => None,
        }
    }

    pub(crate) fn iter(self) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        match self {
            Self::Array(elements) => Box::new(elements.iter()),
            Self::Set(elements) => Box::new(elements.iter()),
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Array(elements) => elements.len(),
            Self::Set(elements) => elements.len(),
        }
    }
}

/// The fault for a text that would be longer than [`limit::TEXT_BYTES`].
pub(crate) fn too_long() -> Fault {
    format!("the text would be longer than {} bytes", limit::TEXT_BYTES).into()
}

/// The fault for a result that would have more elements than [`limit::ELEMENTS`].
pub(crate) fn too_many() -> Fault {
    format!("the result would have more than {} elements", limit::ELEMENTS).into()
}
