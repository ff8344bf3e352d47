//! `regex.*`, as far as it is not compiled into the module.

use regex::{Captures, Regex};

use crate::builtin::{Fault, Outcome};
use crate::operand::{Operands, too_long, too_many};
use crate::table::{Entry, host};
use crate::{Context, Value, globs, limit, re2};

pub(crate) const ENTRIES: &[Entry] = &[
    host("regex.find_n", 3, find_n),
    host("regex.globs_match", 2, globs::globs_match),
    host("regex.replace", 3, replace),
    host("regex.split", 2, split),
    host("regex.template_match", 4, template_match),
];

/// A text that is not too long to be searched to its end again and again.
fn searched(text: &str) -> Result<&str, Fault> {
    if text.len() > limit::SEARCHED_BYTES {
        return Err(format!("the text is longer than {} bytes", limit::SEARCHED_BYTES).into());
    }
    Ok(text)
}

fn find_n(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (pattern, text, count) = (operands.text(0)?, searched(operands.text(1)?)?, operands.integer(2)?);
    // A negative number asks for all.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let pattern = context.pattern(pattern)?;
    let found = pattern.find_iter(text).take(count).map(|found| Value::from(found.as_str()));
    Ok(Some(Value::Array(bounded(found)?)))
}

fn split(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (pattern, text) = (operands.text(0)?, searched(operands.text(1)?)?);
    let compiled = context.pattern(pattern)?;
    if !pattern.is_empty() && text.is_empty() {
        return Ok(Some(Value::Array(vec![Value::from("")])));
    }
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut end = 0;
    for found in compiled.find_iter(text) {
        end = found.start();
        // Nothing stands before a match of nothing at the start.
        if found.end() != 0 {
            parts.push(text.get(begin..end).unwrap_or_default());
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(text.get(begin..).unwrap_or_default());
    }
    Ok(Some(Value::Array(bounded(parts.into_iter().map(Value::from))?)))
}

fn bounded(values: impl Iterator<Item = Value>) -> Result<Vec<Value>, Fault> {
    let values: Vec<Value> = values.take(limit::ELEMENTS.saturating_add(1)).collect();
    if values.len() > limit::ELEMENTS { Err(too_many()) } else { Ok(values) }
}

fn replace(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (text, pattern, template) = (searched(operands.text(0)?)?, operands.text(1)?, operands.text(2)?);
    let pattern = context.pattern(pattern)?;
    let mut replaced = String::with_capacity(text.len());
    let mut last = 0;
    for captures in pattern.captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        replaced.push_str(text.get(last..whole.start()).unwrap_or_default());
        expand(template, &captures, &pattern, &mut replaced)?;
        last = whole.end();
        if replaced.len() > limit::TEXT_BYTES {
            return Err(too_long());
        }
    }
    replaced.push_str(text.get(last..).unwrap_or_default());
    Ok(Some(Value::from(replaced)))
}

/// A template with `$1`, `${1}`, `$name` and `${name}` for groups, and `$$` for `$`.
fn expand(mut template: &str, captures: &Captures<'_>, pattern: &Regex, to: &mut String) -> Result<(), Fault> {
    while let Some((before, after)) = template.split_once('$') {
        to.push_str(before);
        if to.len() > limit::TEXT_BYTES {
            return Err(too_long());
        }
        if let Some(rest) = after.strip_prefix('$') {
            to.push('$');
            template = rest;
            continue;
        }
        let Some((name, rest)) = group_name(after) else {
            // No group is meant.
            to.push('$');
            template = after;
            continue;
        };
        let group = match name.parse::<usize>() {
            // `01` is a name.
            Ok(number) if name == "0" || !name.starts_with('0') => captures.get(number),
            _ => {
                let name = format!("{}{name}", re2::NAME_PREFIX);
                let index = pattern.capture_names().position(|known| known == Some(name.as_str()));
                index.and_then(|index| captures.get(index))
            }
        };
        to.push_str(group.map_or("", |group| group.as_str()));
        template = rest;
    }
    to.push_str(template);
    Ok(())
}

/// The name behind `$`, and what follows it.
fn group_name(text: &str) -> Option<(&str, &str)> {
    let (braced, inner) = match text.strip_prefix('{') {
        Some(inner) => (true, inner),
        None => (false, text),
    };
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    let (name, rest) = inner.split_at_checked(end)?;
    if name.is_empty() {
        return None;
    }
    let rest = if braced { rest.strip_prefix('}')? } else { rest };
    Some((name, rest))
}

/// Expressions between two delimiters, text around them: `urn:foo:{.*}`.
fn template_match(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (template, text) = (operands.text(0)?, operands.text(1)?);
    let delimiter = |position: usize, which: &str| {
        let text = operands.text(position)?;
        let mut bytes = text.bytes();
        match (bytes.next(), bytes.next()) {
            (Some(byte), None) => Ok(byte),
            _ => {
                let length = text.len();
                Err(Fault::from(format!("{which} delimiter has to be exactly one character long but is {length} long")))
            }
        }
    };
    let (start, end) = (delimiter(2, "start")?, delimiter(3, "end")?);
    let unbalanced = || Fault::from(format!("unbalanced braces in {template:?}"));

    let mut pattern = String::from("^");
    let (mut level, mut from) = (0_usize, 0_usize);
    for (at, byte) in template.bytes().enumerate() {
        let part = template.get(from..at).unwrap_or_default();
        if byte == start {
            if level == 0 {
                pattern.push_str(&quoted(part));
                from = at.saturating_add(1);
            }
            level = level.saturating_add(1);
        } else if byte == end {
            level = level.checked_sub(1).ok_or_else(unbalanced)?;
            if level == 0 {
                // Alone it has to be an expression too.
                context.pattern(&format!("^{part}$"))?;
                pattern.push_str(&format!("({part})"));
                from = at.saturating_add(1);
            }
        }
    }
    if level != 0 {
        return Err(unbalanced());
    }
    pattern.push_str(&quoted(template.get(from..).unwrap_or_default()));
    pattern.push('$');
    Ok(Some(Value::Bool(context.pattern(&pattern)?.is_match(text))))
}

/// Text as an expression that matches it: Go's regexp.QuoteMeta.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}
