//! The functions `regex.*` that OPA does not compile into the module.

use crate::builtin::{Fault, Outcome, excerpt};
use crate::context::Text;
use crate::operand::{Operands, too_many};
use crate::pattern::{Kind, Match, Pattern};
use crate::table::{Entry, differing, host};
use crate::{Context, Value, globs, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[
    differing("regex.find_n", 3, find_n, COUNTS),
    host("regex.globs_match", 2, globs::globs_match),
    differing("regex.replace", 3, replace, COUNTS),
    differing("regex.split", 2, split, COUNTS),
    differing("regex.template_match", 4, template_match, COUNTS),
];

const COUNTS: &str = "Nested repetition counts may multiply to more than 1000, and the Unicode version is newer.";

fn find_n(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (pattern, text, count) = (operands.text(0)?, operands.text(1)?, operands.integer(2)?);
    // A negative number means all matches.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let pattern = context.pattern(pattern, Kind::Matches)?;
    let mut search = pattern.search(text, context)?;
    let mut parts = Parts::new(context);
    while parts.0.len() < count
        && let Some(found) = search.next()?
    {
        parts.push(text.get(found.start()..found.end()).unwrap_or_default())?;
    }
    Ok(Some(parts.array()))
}

fn split(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (pattern, text) = (operands.text(0)?, operands.text(1)?);
    let compiled = context.pattern(pattern, Kind::Matches)?;
    if !pattern.is_empty() && text.is_empty() {
        return Ok(Some(Value::Array(vec![Value::from("")])));
    }
    let mut search = compiled.search(text, context)?;
    let mut parts = Parts::new(context);
    let (mut begin, mut end) = (0, 0);
    while let Some(found) = search.next()? {
        end = found.start();
        // There is no part before an empty match at the start.
        if found.end() != 0 {
            parts.push(text.get(begin..end).unwrap_or_default())?;
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(text.get(begin..).unwrap_or_default())?;
    }
    Ok(Some(parts.array()))
}

/// Parts of a text.
struct Parts<'a>(Vec<Value>, &'a Context);

impl<'a> Parts<'a> {
    fn new(context: &'a Context) -> Self {
        Self(Vec::new(), context)
    }

    fn push(&mut self, part: &str) -> Result<(), Fault> {
        let Self(parts, context) = self;
        if parts.len() >= limit::ELEMENTS {
            return Err(too_many());
        }
        context.charge(part.len().saturating_add(weight::ELEMENT + weight::TEXT))?;
        context.work_on(part.len().saturating_add(weight::ELEMENT))?;
        parts.push(Value::from(part));
        Ok(())
    }

    fn array(self) -> Value {
        Value::Array(self.0)
    }
}

fn replace(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (text, pattern, template) = (operands.text(0)?, operands.text(1)?, operands.text(2)?);
    let pattern = context.pattern(pattern, Kind::Groups)?;
    let mut search = pattern.search(text, context)?;
    let mut replaced = Text::of_call(context);
    let mut last = 0;
    while let Some(found) = search.next()? {
        replaced.push_str(text.get(last..found.start()).unwrap_or_default())?;
        expand(template, &found, text, &pattern, &mut replaced)?;
        last = found.end();
    }
    replaced.push_str(text.get(last..).unwrap_or_default())?;
    Ok(Some(Value::from(replaced.take())))
}

/// Expands a template with `$1`, `${1}`, `$name` and `${name}` for groups, and `$$` for `$`.
fn expand(mut template: &str, found: &Match, text: &str, pattern: &Pattern, to: &mut Text<'_>) -> Result<(), Fault> {
    let context = to.context();
    while let Some((before, after)) = template.split_once('$') {
        to.push_str(before)?;
        if let Some(rest) = after.strip_prefix('$') {
            to.push('$')?;
            template = rest;
            continue;
        }
        let Some((name, rest)) = group_name(after) else {
            // This `$` does not name a group.
            to.push('$')?;
            template = after;
            continue;
        };
        context.work_on(name.len().saturating_mul(2).saturating_add(20))?;
        let group = match name.parse::<usize>() {
            // `01` is a name.
            Ok(number) if name == "0" || !name.starts_with('0') => found.group(number, text),
            _ => {
                context.work(pattern.names().saturating_mul(8))?;
                pattern.named(name, found, text)
            }
        };
        to.push_str(group.unwrap_or_default())?;
        template = rest;
    }
    to.push_str(template)
}

/// The group's name after a `$`, and the text after the name.
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

/// `regex.template_match`: the template has expressions between two delimiters, such as `urn:foo:{.*}`; the rest is plain text.
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
    let unbalanced = || Fault::from(format!("unbalanced braces in {:?}", excerpt(template)));

    let mut pattern = String::from("^");
    let (mut level, mut from) = (0_usize, 0_usize);
    for (at, byte) in template.bytes().enumerate() {
        let part = template.get(from..at).unwrap_or_default();
        if byte == start {
            if level == 0 {
                context.work_on(part.len())?;
                pattern.push_str(&quoted(part));
                from = at.saturating_add(1);
            }
            level = level.saturating_add(1);
        } else if byte == end {
            level = level.checked_sub(1).ok_or_else(unbalanced)?;
            if level == 0 {
                // The part must also be a valid expression by itself.
                context.work(part.len().saturating_mul(4).saturating_add(800))?;
                context.pattern(&format!("^{part}$"), Kind::Matches)?;
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
    Ok(Some(Value::Bool(context.pattern(&pattern, Kind::Matches)?.is_match(text, context)?)))
}

/// An expression that matches the text literally: Go's regexp.QuoteMeta.
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
