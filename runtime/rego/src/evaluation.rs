//! What is about the evaluation itself: when it is, and what it tells its author.

use std::collections::BTreeMap;

use crate::builtin::Outcome;
use crate::go::quote::Shown;
use crate::table::{Entry, differing, host};
use crate::{Context, Value};

pub(crate) const ENTRIES: &[Entry] = &[
    host("internal.print", 1, print),
    differing("opa.runtime", 0, runtime, "It is an empty object: a policy sees nothing of the process that runs it."),
    differing(
        "time.now_ns",
        0,
        now_ns,
        "It is how long the policy has been evaluated (`input.tick.elapsedUsec`), and stands still within an evaluation: its \
         differences are right, but it knows no date. A replay gives the same settings.",
    ),
    differing("trace", 1, trace, "The note is kept as a line of the policy's log, whatever `--explain` says."),
];

/// One argument for each of `print`'s, each a scalar or a set of the values that it has; a line for each combination. Gives
/// nothing: `opa build` drops it unless it is told to keep it.
fn print(arguments: &[Value], context: &Context) -> Outcome {
    let [Value::Array(operands)] = arguments else { return Err("operand 1 must be array".into()) };
    let mut lines = vec![String::new()];
    for (index, operand) in operands.iter().enumerate() {
        let separator = if index == 0 { "" } else { " " };
        let texts: Vec<String> = match operand {
            Value::Set(values) if values.is_empty() => vec!["<undefined>".to_owned()],
            Value::Set(values) => values.iter().map(printed).collect(),
            Value::Array(_) | Value::Object(_) => return Err("illegal argument type".into()),
            scalar => vec![printed(scalar)],
        };
        lines = lines
            .iter()
            .flat_map(|line| texts.iter().map(move |text| format!("{line}{separator}{text}")))
            .take(crate::limit::LOG_LINES)
            .collect();
    }
    for line in lines {
        context.write(line);
    }
    Ok(None)
}

/// A string as it is, anything else as OPA shows it.
fn printed(value: &Value) -> String {
    value.as_str().map_or_else(|| Shown(value).to_string(), str::to_owned)
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
            context.write(note.clone());
            Ok(Some(Value::Bool(true)))
        }
        _ => Err("operand 1 must be string".into()),
    }
}
