//! What is about the evaluation itself: when it is, and what it tells its author.

use std::collections::BTreeMap;

use crate::builtin::Outcome;
use crate::table::{Entry, differing, host};
use crate::{Context, Value};

pub(crate) const ENTRIES: &[Entry] = &[
    host("internal.print", 1, print),
    differing("opa.runtime", 0, runtime, "It is an empty object: a policy sees nothing of the process that runs it."),
    differing("time.now_ns", 0, now_ns, "It is the time of the tick, so that a replay gives the same settings."),
    differing("trace", 1, trace, "The note is kept as a line of the policy's log, whatever `--explain` says."),
];

/// One argument for each of `print`'s, each a set of the values that it has; a line for each combination.
fn print(arguments: &[Value], context: &Context) -> Outcome {
    let [Value::Array(operands)] = arguments else { return Err("operand 1 must be array".into()) };
    let mut lines = vec![String::new()];
    for (index, operand) in operands.iter().enumerate() {
        let Value::Set(values) = operand else { return Err("operand 1 must be an array of sets".into()) };
        let separator = if index == 0 { "" } else { " " };
        let texts: Vec<String> = match values.len() {
            0 => vec!["<undefined>".to_owned()],
            _ => values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect(),
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
    Ok(Some(Value::Bool(true)))
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
