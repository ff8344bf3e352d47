//! `json.patch`: RFC 6902 as in OPA, which also patches sets.

use std::collections::BTreeSet;

use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::{Operands, too_many};
use crate::table::{Entry, differing};
use crate::{Context, Value, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[differing(
    "json.patch",
    2,
    patch,
    "After a removal a path finds the element that moved to that index, as RFC 6902 specifies; OPA may use the element that was \
     there before.",
)];

fn patch(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (document, operations) = (operands.any(0)?, operands.array(1)?);
    let weight = document.weight();
    let mut document = Document { value: Some(document.clone()), weight, context };
    for operation in operations {
        document.apply(operation)?;
    }
    Ok(document.value)
}

/// Maximum weight of a document in bytes, as for the values of one call.
const HEAVIEST: usize = limit::ELEMENTS * 2 * weight::ELEMENT;

struct Document<'c> {
    /// `None` once the whole document has been removed.
    value: Option<Value>,
    /// Bytes of the original document plus those of all insertions since the document was last replaced as a whole.
    weight: usize,
    context: &'c Context,
}

impl Document<'_> {
    fn apply(&mut self, operation: &Value) -> Result<(), Fault> {
        let operation = operation
            .as_object()
            .ok_or("must be an array of JSON-Patch objects, but at least one element is not an object")?;
        let attribute = |name: &str| operation.get(&Value::from(name));
        let required =
            |name: &str| attribute(name).ok_or_else(|| Fault::from(format!("missing required attribute '{name}'")));
        // An operation looks up keys in the document, and may shift an array's elements or compare the whole document.
        self.context.work((self.weight / 32).saturating_add(200))?;
        let path = self::path(required("path")?, self.context)?;
        let op = required("op")?;
        let op = op.as_str().ok_or_else(|| format!("attribute 'op' must be a string but found: {}", op.type_name()))?;
        match op {
            "add" => self.insert(&path, required("value")?.clone()),
            "remove" => self.remove(&path).map(drop),
            "replace" => {
                let value = required("value")?.clone();
                self.remove(&path)?;
                self.insert(&path, value)
            }
            "move" => {
                let from = self::path(required("from")?, self.context)?;
                let value = self.remove(&from)?;
                self.insert(&path, value)
            }
            "copy" => {
                let from = self::path(required("from")?, self.context)?;
                let found = self.find(&from)?;
                // A copy that is too large is refused before it is made.
                let weight = found.weight();
                self.context.charge(weight)?;
                self.context.work_on(weight)?;
                let value = found.clone();
                self.insert(&path, value)
            }
            "test" => {
                let (found, value) = (self.find(&path)?, required("value")?);
                self.context.work_on(found.weight().saturating_add(value.weight()))?;
                if found == value { Ok(()) } else { Err("found another value than the one expected".into()) }
            }
            other => Err(format!("unrecognized op: '{}'", excerpt(other)).into()),
        }
    }

    fn find(&self, path: &[Value]) -> Result<&Value, Fault> {
        let mut value = self.value.as_ref().ok_or("the document has been removed")?;
        for key in path {
            let child = match value {
                Value::Object(pairs) => pairs.get(key),
                Value::Set(elements) => elements.get(key),
                Value::Array(elements) => elements.get(index(elements.len(), key)?),
                _ => None,
            };
            value = child.ok_or_else(|| missing(key))?;
        }
        Ok(value)
    }

    fn insert(&mut self, path: &[Value], value: Value) -> Result<(), Fault> {
        let weight = value.weight();
        self.context.charge(weight)?;
        self.context.work_on(weight)?;
        self.weight = self.weight.saturating_add(weight);
        if self.weight > HEAVIEST {
            return Err(too_many());
        }
        if path.len().saturating_add(depth(&value)) > limit::DEPTH {
            return Err(format!("the document would be nested deeper than {}", limit::DEPTH).into());
        }
        let Some((key, parents)) = path.split_last() else {
            self.value = Some(value);
            self.weight = weight;
            return Ok(());
        };
        let root = self.value.as_mut().ok_or("the document has been removed")?;
        within(root, parents, &mut |parent| match parent {
            Value::Object(pairs) => {
                pairs.insert(key.clone(), value.clone());
                Ok(())
            }
            Value::Set(elements) if *key == value => {
                elements.insert(value.clone());
                Ok(())
            }
            Value::Set(_) => Err("a set's key does not equal the value to be inserted".into()),
            Value::Array(elements) => {
                let index = index(elements.len(), key)?;
                if index > elements.len() {
                    return Err("index for array insertion out of bounds".into());
                }
                elements.insert(index, value.clone());
                Ok(())
            }
            other => Err(format!("expected composite type, found {}", other.type_name()).into()),
        })
    }

    fn remove(&mut self, path: &[Value]) -> Result<Value, Fault> {
        let Some((key, parents)) = path.split_last() else {
            return self.value.take().ok_or_else(|| "the document has been removed".into());
        };
        let root = self.value.as_mut().ok_or("the document has been removed")?;
        let mut removed = None;
        within(root, parents, &mut |parent| {
            removed = match parent {
                Value::Object(pairs) => pairs.remove(key),
                Value::Set(elements) => elements.take(key),
                Value::Array(elements) => {
                    let index = index(elements.len(), key)?;
                    if index < elements.len() { Some(elements.remove(index)) } else { None }
                }
                _ => None,
            };
            Ok(())
        })?;
        removed.ok_or_else(|| missing(key))
    }
}

/// Changes the value at a path.
fn within(
    value: &mut Value,
    path: &[Value],
    change: &mut dyn FnMut(&mut Value) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some((key, rest)) = path.split_first() else { return change(value) };
    let child = match value {
        Value::Object(pairs) => pairs.get_mut(key),
        Value::Set(elements) => return within_element(elements, key, rest, change),
        Value::Array(elements) => {
            let index = index(elements.len(), key)?;
            elements.get_mut(index)
        }
        _ => None,
    };
    within(child.ok_or_else(|| missing(key))?, rest, change)
}

/// Changes an element of a set, which is removed and inserted again because its order may change.
fn within_element(
    elements: &mut BTreeSet<Value>,
    key: &Value,
    rest: &[Value],
    change: &mut dyn FnMut(&mut Value) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut element = elements.take(key).ok_or_else(|| missing(key))?;
    let changed = within(&mut element, rest, change);
    elements.insert(element);
    changed
}

fn missing(key: &Value) -> Fault {
    let key = match key {
        Value::String(text) => excerpt(text),
        other => other.type_name(),
    };
    format!("path {key} does not exist").into()
}

/// Parses a path: an array of keys, or `/a/b` with `~1` for a slash and `~0` for a tilde. Leading slashes are ignored.
fn path(value: &Value, context: &Context) -> Result<Vec<Value>, Fault> {
    let keys = value.as_str().map_or(0, |text| text.bytes().filter(|byte| *byte == b'/').count().saturating_add(1));
    let weight = value.weight().saturating_mul(2).saturating_add(keys.saturating_mul(weight::ELEMENT + weight::TEXT));
    context.charge(weight)?;
    context.work_on(weight.saturating_mul(2))?;
    match value {
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => {
            let keys = text.trim_start_matches('/').split('/');
            Ok(keys.map(|key| Value::from(key.replace("~1", "/").replace("~0", "~"))).collect())
        }
        Value::Array(keys) => Ok(keys.clone()),
        other => Err(format!(
            "operand 2 must be one of {{set, array}} containing string paths or array of path segments but got {}",
            other.type_name()
        )
        .into()),
    }
}

/// Parses an index of an array; `-` is the index after the last element.
fn index(length: usize, key: &Value) -> Result<usize, Fault> {
    let index = match key {
        Value::Number(number) => number.as_i64(),
        Value::String(text) if text == "-" => return Ok(length),
        Value::String(text) if text.len() > 1 && text.starts_with('0') => {
            return Err("leading zeros are not allowed in JSON paths".into());
        }
        Value::String(text) => crate::Number::parse(text).and_then(|number| number.as_i64()),
        _ => None,
    };
    let index = index.ok_or("invalid index of an array")?;
    usize::try_from(index).map_err(|_| "index out of bounds".into())
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
        Value::Array(elements) => elements.iter().map(depth).max(),
        Value::Set(elements) => elements.iter().map(depth).max(),
        Value::Object(pairs) => pairs.iter().map(|(key, value)| depth(key).max(depth(value))).max(),
    };
    inner.unwrap_or(0).saturating_add(1)
}
