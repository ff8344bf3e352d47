//! One evaluation that does nothing but call one function until its budget is spent.

use qosm_rego::{Budget, Builtin, BuiltinError, Context};

/// Calls until the budget is spent, or often. What came of the last one, and how many there were.
pub(crate) fn evaluation(builtin: Builtin, arguments: &[String]) -> (Option<BuiltinError>, usize) {
    let context = Context::with_budget(0, Budget::default());
    for calls in 1..=10_000 {
        let outcome = call(builtin, arguments, &context);
        if context.spent().is_some() {
            return (outcome.err(), calls);
        }
        // A call that does nothing ends with the module that makes it.
        if calls >= 20 && context.take_log().is_empty() && arguments.iter().map(String::len).sum::<usize>() < 64 {
            return (outcome.err(), calls);
        }
    }
    (None, 10_000)
}

/// As the engine does it.
pub(crate) fn call(builtin: Builtin, arguments: &[String], context: &Context) -> Result<Option<String>, BuiltinError> {
    let failed = |reason: String| BuiltinError::Failed { builtin: builtin.name(), reason };
    let mut values = Vec::new();
    for argument in arguments {
        // The module's memory has been copied.
        let argument = argument.clone();
        values.push(context.read(&argument).map_err(|error| failed(error.to_string()))?);
    }
    let Some(value) = builtin.call(&values, context)? else { return Ok(None) };
    context.answer(&value).map(Some).map_err(|what| BuiltinError::Spent { builtin: builtin.name(), what })
}
