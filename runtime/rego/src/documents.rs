//! `json.marshal_with_options`, `json.match_schema`, `json.verify_schema` and `yaml.*`.

use std::collections::BTreeMap;

use crate::builtin::{Fault, Outcome};
use crate::operand::{Operands, too_long};
use crate::table::{Entry, differing, host};
use crate::{Context, Value, limit, schema, yaml};

pub(crate) const ENTRIES: &[Entry] = &[
    host("json.marshal_with_options", 2, marshal_with_options),
    differing(
        "json.match_schema",
        2,
        schema::match_schema,
        "The words of its complaints are others. Drafts 4 to 2020-12 are known, draft 7 is meant unless `$schema` says otherwise; \
         `$ref` goes to the schema's own parts, and not around in a circle.",
    ),
    differing("json.verify_schema", 1, schema::verify_schema, "As `json.match_schema`."),
    differing("yaml.is_valid", 1, yaml::is_valid, YAML),
    differing(
        "yaml.marshal",
        1,
        yaml::marshal,
        "Strings that YAML could mistake for something else are all in double quotes; what is read back is the same.",
    ),
    differing("yaml.unmarshal", 1, yaml::unmarshal, YAML),
];

const YAML: &str = "YAML 1.2 is read: numbers with `_` in them are strings. Documents of nothing but `null` are passed over where several \
                    stand in a row.";

fn marshal_with_options(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let value = operands.any(0)?;
    let (mut prefix, mut indent, mut is_pretty, mut is_indented) = ("", "\t", None, false);
    for (key, option) in operands.object(1)? {
        let key = key.as_str().ok_or_else(|| format!("operand 2 failed to stringify key {key}"))?;
        let text = || option.as_str().ok_or_else(|| Fault::from(format!("operand 2 key {key} failed cast to string")));
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
                is_pretty = Some(pretty.ok_or_else(|| format!("operand 2 key {key} failed cast to bool"))?);
            }
            _ => return Err(format!("operand 2 object contained unknown key {key}").into()),
        }
    }
    let is_pretty = is_pretty.unwrap_or(is_indented);
    let mut writer = Writer { text: String::new(), lines: if is_pretty { Some((prefix, indent)) } else { None } };
    if is_pretty {
        writer.text.push_str(prefix);
    }
    writer.write(value, 0)?;
    Ok(Some(Value::from(writer.text)))
}

/// JSON as Go's encoding/json writes it.
struct Writer<'a> {
    text: String,
    /// What each line begins with, and what for each level after that; none for one line alone.
    lines: Option<(&'a str, &'a str)>,
}

impl Writer<'_> {
    fn write(&mut self, value: &Value, level: usize) -> Result<(), Fault> {
        if self.text.len() > limit::TEXT_BYTES {
            return Err(too_long());
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.text.push_str(&value.to_string()),
            Value::String(text) => quoted(text, &mut self.text),
            Value::Array(elements) => self.list(elements, level)?,
            Value::Set(elements) => self.list(elements, level)?,
            Value::Object(pairs) => {
                // In the order of their texts, which is not that of keys which are no strings.
                let pairs: BTreeMap<String, &Value> = pairs.iter().map(|(key, value)| (key_text(key), value)).collect();
                self.text.push('{');
                for (index, (key, value)) in pairs.iter().enumerate() {
                    self.separate(index, level.saturating_add(1))?;
                    quoted(key, &mut self.text);
                    self.text.push_str(if self.lines.is_some() { ": " } else { ":" });
                    self.write(value, level.saturating_add(1))?;
                }
                self.close(pairs.is_empty(), '}', level)?;
            }
        }
        Ok(())
    }

    fn list<'v>(&mut self, elements: impl IntoIterator<Item = &'v Value>, level: usize) -> Result<(), Fault> {
        self.text.push('[');
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
            self.text.push(',');
        }
        self.line(level)
    }

    fn close(&mut self, is_empty: bool, bracket: char, level: usize) -> Result<(), Fault> {
        if !is_empty {
            self.line(level)?;
        }
        self.text.push(bracket);
        Ok(())
    }

    fn line(&mut self, level: usize) -> Result<(), Fault> {
        let Some((prefix, indent)) = self.lines else { return Ok(()) };
        let length = indent.len().saturating_mul(level).saturating_add(prefix.len());
        if self.text.len().saturating_add(length) > limit::TEXT_BYTES {
            return Err(too_long());
        }
        self.text.push('\n');
        self.text.push_str(prefix);
        self.text.push_str(&indent.repeat(level));
        Ok(())
    }
}

/// A key as text: JSON, where it is no string.
fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        other => {
            let mut writer = Writer { text: String::new(), lines: None };
            // It is at most as long as the value, which is bounded.
            let _ = writer.write(other, 0);
            writer.text
        }
    }
}

/// A string of JSON, with the escapes that keep it from being taken for HTML.
fn quoted(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            '<' | '>' | '&' | '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => {
                to.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => to.push(c),
        }
    }
    to.push('"');
}
