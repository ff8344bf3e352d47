//! `strings.*`, `sprintf`, `indexof_n` and `glob.quote_meta`.

use crate::builtin::Outcome;
use crate::context::Text;
use crate::go::printf;
use crate::operand::{Operands, too_many};
use crate::table::{Entry, host};
use crate::{Context, Value, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[
    host("glob.quote_meta", 1, quote_meta),
    host("indexof_n", 2, indexof_n),
    host("sprintf", 2, sprintf),
    host("strings.any_prefix_match", 2, any_prefix_match),
    host("strings.any_suffix_match", 2, any_suffix_match),
    host("strings.count", 2, count),
    host("strings.split_n", 3, split_n),
];

fn sprintf(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    Ok(Some(Value::from(printf::sprintf(operands.text(0)?, operands.array(1)?, context)?)))
}

fn any_prefix_match(arguments: &[Value], context: &Context) -> Outcome {
    any_match(Operands(arguments), context, |text, prefix| text.starts_with(prefix))
}

fn any_suffix_match(arguments: &[Value], context: &Context) -> Outcome {
    any_match(Operands(arguments), context, |text, suffix| text.ends_with(suffix))
}

fn any_match(operands: Operands<'_>, context: &Context, matches: fn(&str, &str) -> bool) -> Outcome {
    let (texts, bases) = (operands.texts(0)?, operands.texts(1)?);
    for text in &texts {
        for base in &bases {
            context.work((text.len().min(base.len()) / 8).saturating_add(6))?;
            if matches(text, base) {
                return Ok(Some(Value::Bool(true)));
            }
        }
    }
    Ok(Some(Value::Bool(false)))
}

fn count(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (text, part) = (operands.text(0)?, operands.text(1)?);
    // An empty part occurs before, between and after all characters; `matches` counts the same.
    Ok(Some(Value::from(i64::try_from(text.matches(part).count()).unwrap_or(i64::MAX))))
}

/// `indexof_n`: the offsets of all occurrences of a part in a text, in characters. Occurrences may overlap.
fn indexof_n(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (text, part) = (operands.text(0)?, operands.text(1)?);
    let first = part.chars().next().ok_or("empty search character")?;
    let mut places = Vec::new();
    for (index, (at, c)) in (0_i64..).zip(text.char_indices()) {
        if c != first {
            continue;
        }
        context.work((part.len() / 8).saturating_add(6))?;
        if text.get(at..).is_some_and(|rest| rest.starts_with(part)) {
            if places.len() >= limit::ELEMENTS {
                return Err(too_many());
            }
            context.charge(weight::ELEMENT)?;
            places.push(Value::from(index));
        }
    }
    Ok(Some(Value::Array(places)))
}

/// `strings.split_n`: the first parts, or with a negative number the last ones.
fn split_n(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (text, delimiter, wanted) = (operands.text(0)?, operands.text(1)?, operands.integer(2)?);
    let count = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    // With an empty delimiter Go splits into characters.
    let all: Box<dyn Iterator<Item = &str>> = match delimiter {
        "" => Box::new(text.split("").filter(|part| !part.is_empty())),
        _ => Box::new(text.split(delimiter)),
    };
    for part in all {
        if wanted >= 0 && parts.len() >= count {
            break;
        }
        if parts.len() >= limit::ELEMENTS {
            return Err(too_many());
        }
        context.charge(part.len().saturating_add(2 * weight::ELEMENT + weight::TEXT))?;
        context.work(100)?;
        parts.push(part);
    }
    let skipped = if wanted < 0 { parts.len().saturating_sub(count) } else { 0 };
    Ok(Some(Value::Array(parts.into_iter().skip(skipped).map(Value::from).collect())))
}

fn quote_meta(arguments: &[Value], context: &Context) -> Outcome {
    let text = Operands(arguments).text(0)?;
    let mut quoted = Text::of_call(context);
    for c in text.chars() {
        if matches!(c, '?' | '\\' | '*' | '[' | ']' | '{' | '}') {
            quoted.push('\\')?;
        }
        quoted.push(c)?;
    }
    Ok(Some(Value::from(quoted.take())))
}
