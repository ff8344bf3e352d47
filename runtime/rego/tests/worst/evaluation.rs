//! An evaluation that calls one function until its budget is spent.

use qosm_rego::{Budget, Builtin, BuiltinError, Context};

/// Calls a function until the budget is spent, at most 10 000 times. Returns the error of the last call and the number of calls.
pub(crate) fn evaluation(builtin: Builtin, arguments: &[String]) -> (Option<BuiltinError>, usize) {
    let context = Context::with_budget(0, Budget::default());
    for calls in 1..=10_000 {
        let outcome = call(builtin, arguments, &context);
        if context.spent().is_some() {
            return (outcome.err(), calls);
        }
        // Cheap calls without output are bounded by the module that makes them.
        if calls >= 20 && context.take_log().is_empty() && arguments.iter().map(String::len).sum::<usize>() < 64 {
            return (outcome.err(), calls);
        }
    }
    (None, 10_000)
}

/// Calls a function as the engine does.
pub(crate) fn call(builtin: Builtin, arguments: &[String], context: &Context) -> Result<Option<String>, BuiltinError> {
    let failed = |reason: String| BuiltinError::Failed { builtin: builtin.name(), reason };
    let mut values = Vec::new();
    for argument in arguments {
        // The engine copies the argument from the module's memory.
        let argument = argument.clone();
        values.push(context.read(&argument).map_err(|error| failed(error.to_string()))?);
    }
    let Some(value) = builtin.call(&values, context)? else { return Ok(None) };
    context.answer(&value).map(Some).map_err(|what| BuiltinError::Spent { builtin: builtin.name(), what })
}
