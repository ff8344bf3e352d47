//! Functions about the evaluation itself: its time, and messages to its author.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::builtin::{Fault, Outcome};
use crate::context::Text;
use crate::go::quote::Shown;
use crate::operand::too_long;
use crate::table::{Entry, differing, host};
use crate::{Context, Value, limit};

pub(crate) const ENTRIES: &[Entry] = &[
    host("internal.print", 1, print),
    differing(
        "opa.runtime",
        0,
        runtime,
        "The result is an empty object: a policy sees nothing of the agent's process.",
    ),
    differing(
        "time.now_ns",
        0,
        now_ns,
        "The result is the time since the policy's instance started (`input.tick.elapsedUsec`), constant within an evaluation: \
         differences are right, but it has no date. A replay gives the same settings.",
    ),
    differing("trace", 1, trace, "The note becomes a line of the policy's log, independent of `--explain`."),
];

/// `internal.print`: its argument is an array with one element for each argument of `print`, a scalar or the set of its
/// values. It writes a line for each combination. `opa build` drops the call by default.
fn print(arguments: &[Value], context: &Context) -> Outcome {
    let [Value::Array(operands)] = arguments else { return Err("operand 1 must be array".into()) };
    let mut lines = vec![String::new()];
    for (index, operand) in operands.iter().enumerate() {
        let separator = if index == 0 { "" } else { " " };
        let texts: Vec<String> = match operand {
            Value::Set(values) if values.is_empty() => vec!["<undefined>".to_owned()],
            Value::Set(values) => {
                values.iter().take(limit::LOG_LINES).map(|value| printed(value, context)).collect::<Result<_, _>>()?
            }
            Value::Array(_) | Value::Object(_) => return Err("illegal argument type".into()),
            scalar => vec![printed(scalar, context)?],
        };
        let mut longer = Vec::new();
        for (line, text) in lines.iter().flat_map(|line| texts.iter().map(move |text| (line, text))) {
            if longer.len() >= limit::LOG_LINES {
                break;
            }
            let room = (limit::LOG_LINE_BYTES + 8).saturating_sub(line.len());
            let text = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
            let length = line.len().saturating_add(text.len()).saturating_add(32);
            context.work(length.saturating_add(100))?;
            longer.push(if room == 0 { line.clone() } else { format!("{line}{separator}{text}") });
        }
        lines = longer;
    }
    for line in lines {
        context.write(&line);
    }
    Ok(None)
}

/// A string unchanged, any other value as OPA prints it, cut to about the length of a line.
fn printed(value: &Value, context: &Context) -> Result<String, Fault> {
    if let Some(text) = value.as_str() {
        return Ok(text.get(..text.floor_char_boundary(limit::LOG_LINE_BYTES + 8)).unwrap_or_default().to_owned());
    }
    let mut text = Text::of_call(context);
    write!(text, "{}", Shown(value)).map_err(|_| too_long())?;
    Ok(text.take())
}

fn runtime(_: &[Value], _: &Context) -> Outcome {
    Ok(Some(Value::Object(BTreeMap::new())))
}

fn now_ns(_: &[Value], context: &Context) -> Outcome {
    Ok(Some(Value::from(context.now_ns())))
}

fn trace(arguments: &[Value], context: &Context) -> Outcome {
    match arguments {
        [Value::String(note)] => {
            context.write(note);
            Ok(Some(Value::Bool(true)))
        }
        _ => Err("operand 1 must be string".into()),
    }
}
