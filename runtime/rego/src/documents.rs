//! `json.marshal_with_options`, `json.match_schema`, `json.verify_schema` and `yaml.*`.

use std::collections::BTreeMap;

use crate::builtin::{Fault, Outcome, excerpt};
use crate::context::Text;
use crate::operand::{Operands, too_long};
use crate::table::{Entry, differing, host};
use crate::{Context, Value, limit, schema, yaml};

pub(crate) const ENTRIES: &[Entry] = &[
    host("json.marshal_with_options", 2, marshal_with_options),
    differing(
        "json.match_schema",
        2,
        schema::match_schema,
        "Error messages differ. Drafts 4 to 2020-12 are known; the default is draft 7 unless `$schema` names another. `$ref` may \
         point only into the schema itself, without cycles.",
    ),
    differing("json.verify_schema", 1, schema::verify_schema, "As `json.match_schema`."),
    differing("yaml.is_valid", 1, yaml::is_valid, YAML),
    differing(
        "yaml.marshal",
        1,
        yaml::marshal,
        "Keys are sorted as text, where OPA compares digits in them as numbers; some strings of several lines are quoted. \
         Reading the output back gives the same value.",
    ),
    differing("yaml.unmarshal", 1, yaml::unmarshal, YAML),
];

const YAML: &str = "A tab before a key is accepted, and consecutive documents that contain only `null` are skipped.";

fn marshal_with_options(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let value = operands.any(0)?;
    let (mut prefix, mut indent, mut is_pretty, mut is_indented) = ("", "\t", None, false);
    for (key, option) in operands.object(1)? {
        let key =
            key.as_str().ok_or_else(|| format!("operand 2 failed to stringify a key of type {}", key.type_name()))?;
        let text = || {
            option.as_str().ok_or_else(|| Fault::from(format!("operand 2 key {} failed cast to string", excerpt(key))))
        };
        match key {
            "prefix" => {
                prefix = text()?;
                is_indented = true;
            }
            "indent" => {
                indent = text()?;
                is_indented = true;
            }
            "pretty" => {
                let pretty = option.as_bool();
                is_pretty = Some(pretty.ok_or_else(|| format!("operand 2 key {} failed cast to bool", excerpt(key)))?);
            }
            _ => return Err(format!("operand 2 object contained unknown key {}", excerpt(key)).into()),
        }
    }
    let is_pretty = is_pretty.unwrap_or(is_indented);
    let mut writer =
        Writer { text: Text::of_call(context), lines: if is_pretty { Some((prefix, indent)) } else { None } };
    if is_pretty {
        writer.text.push_str(prefix)?;
    }
    writer.write(value, 0)?;
    Ok(Some(Value::from(writer.text.take())))
}

/// JSON as Go's encoding/json writes it.
struct Writer<'a> {
    text: Text<'a>,
    /// Prefix of each line, and indent for each level; `None` to write a single line.
    lines: Option<(&'a str, &'a str)>,
}

impl Writer<'_> {
    fn write(&mut self, value: &Value, level: usize) -> Result<(), Fault> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.text.push_str(&value.to_string())?,
            Value::String(text) => quoted(text, &mut self.text)?,
            Value::Array(elements) => self.list(elements, level)?,
            Value::Set(elements) => self.list(elements, level)?,
            Value::Object(pairs) => {
                // Ordered by the keys' texts, which differs from the order of keys that are not strings.
                let context = self.text.context();
                let pairs = by_text(pairs, context, |key| key_text(key, context))?;
                self.text.push('{')?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    self.separate(index, level.saturating_add(1))?;
                    quoted(key, &mut self.text)?;
                    self.text.push_str(if self.lines.is_some() { ": " } else { ":" })?;
                    self.write(value, level.saturating_add(1))?;
                }
                self.close(pairs.is_empty(), '}', level)?;
            }
        }
        Ok(())
    }

    fn list<'v>(&mut self, elements: impl IntoIterator<Item = &'v Value>, level: usize) -> Result<(), Fault> {
        self.text.push('[')?;
        let mut is_empty = true;
        for (index, element) in elements.into_iter().enumerate() {
            is_empty = false;
            self.separate(index, level.saturating_add(1))?;
            self.write(element, level.saturating_add(1))?;
        }
        self.close(is_empty, ']', level)
    }

    fn separate(&mut self, index: usize, level: usize) -> Result<(), Fault> {
        if index > 0 {
            self.text.push(',')?;
        }
        self.line(level)
    }

    fn close(&mut self, is_empty: bool, bracket: char, level: usize) -> Result<(), Fault> {
        if !is_empty {
            self.line(level)?;
        }
        self.text.push(bracket)
    }

    fn line(&mut self, level: usize) -> Result<(), Fault> {
        let Some((prefix, indent)) = self.lines else { return Ok(()) };
        self.text.push('\n')?;
        self.text.push_str(prefix)?;
        self.text.push_times(indent, level)
    }
}

/// An object's pairs in the order of their keys' texts.
pub(crate) fn by_text<'v>(
    pairs: &'v BTreeMap<Value, Value>,
    context: &Context,
    text: impl Fn(&Value) -> Result<String, Fault>,
) -> Result<BTreeMap<String, &'v Value>, Fault> {
    let mut by_text = BTreeMap::new();
    for (key, value) in pairs {
        let key = text(key)?;
        let weight = key.len().saturating_add(192);
        context.charge(weight)?;
        context.work_on(weight.saturating_mul(2))?;
        by_text.insert(key, value);
    }
    Ok(by_text)
}

/// A key that is not a string, as compact JSON. Each level of such keys within keys doubles the escapes.
pub(crate) fn key_json(key: &Value, context: &Context) -> Result<String, Fault> {
    let text = key.to_json_within(limit::TEXT_BYTES);
    let length = text.as_ref().map_or(2 * limit::TEXT_BYTES, String::len);
    context.charge(length)?;
    context.work(length.saturating_mul(4))?;
    text.ok_or_else(too_long)
}

/// A key as text; JSON if it is not a string.
fn key_text(key: &Value, context: &Context) -> Result<String, Fault> {
    match key {
        Value::String(text) => Ok(text.clone()),
        other => {
            let mut writer = Writer { text: Text::of_call(context), lines: None };
            writer.write(other, 0)?;
            Ok(writer.text.take())
        }
    }
}

/// Writes a JSON string with the characters escaped that are special in HTML.
fn quoted(text: &str, to: &mut Text<'_>) -> Result<(), Fault> {
    to.push('"')?;
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\"")?,
            '\\' => to.push_str("\\\\")?,
            '\n' => to.push_str("\\n")?,
            '\r' => to.push_str("\\r")?,
            '\t' => to.push_str("\\t")?,
            '\u{8}' => to.push_str("\\b")?,
            '\u{c}' => to.push_str("\\f")?,
            '<' | '>' | '&' | '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => {
                to.push_str(&format!("\\u{:04x}", u32::from(c)))?;
            }
            _ => to.push(c)?,
        }
    }
    to.push('"')
}
