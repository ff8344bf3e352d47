//! Each function that the host answers, with the worst that it can be asked: whatever a policy calls, and however often, one evaluation
//! takes no more than 50 ms of CPU time and 32 MiB.
//!
//! Arguments go in and answers come out as texts, as they do between a module and its host, and nothing but the count of what was done
//! ends a call: the clock is not asked.

mod allocator;
mod arguments;

use std::time::Duration;

use qosm_rego::{Budget, Builtin, BuiltinError, Context, cpu_time, table};

const TIME: Duration = Duration::from_millis(50);
/// How often a function that took too long is tried again: a machine that is busy otherwise makes CPU time dear, and not each time.
const ATTEMPTS: u32 = 30;
const MEMORY: usize = 32 << 20;

/// Texts that one call is handed are at most this long altogether: a module has 32 MiB for everything.
const HANDED: usize = 2 << 20;

/// Calls until the budget is spent, or often. What came of the last one.
fn evaluation(builtin: Builtin, arguments: &[String]) -> (Option<BuiltinError>, usize) {
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
fn call(builtin: Builtin, arguments: &[String], context: &Context) -> Result<Option<String>, BuiltinError> {
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

#[test]
fn no_function_takes_an_evaluation_beyond_its_time_and_memory() {
    let mut complaints = Vec::new();
    for builtin in table::answered() {
        let name = builtin.name();
        let cases = arguments::worst(name);
        if cases.is_empty() {
            complaints.push(format!("{name}: no worst arguments are known; add them to tests/worst/arguments.rs"));
        }
        for (index, arguments) in cases.iter().enumerate() {
            assert_eq!(arguments.len(), builtin.arity(), "{name}, case {index}");
            let handed: usize = arguments.iter().map(String::len).sum();
            assert!(handed <= HANDED, "{name}, case {index}: {handed} bytes of arguments");
            // What the machine does beside is not counted as its own: the quickest of many.
            let mut time = Duration::MAX;
            let mut memory = 0;
            let mut ended = (None, 0);
            for _ in 0..ATTEMPTS {
                let begun = cpu_time();
                let (outcome, most) = allocator::most_while(|| evaluation(builtin, arguments));
                time = time.min(cpu_time() - begun);
                (ended, memory) = (outcome, memory.max(most));
                if time <= TIME {
                    break;
                }
            }
            let reported =
                format!("{name}, case {index}: {time:?}, {} KiB, {} calls: {:?}", memory >> 10, ended.1, ended.0);
            println!("{reported}");
            if time > TIME || memory > MEMORY {
                complaints.push(reported);
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn many_calls_together_have_one_budget() {
    let sprintf = qosm_rego::builtin("sprintf").unwrap();
    let context = Context::new(0);
    let arguments = [r#""%s""#.to_owned(), format!("[\"{}\"]", "a".repeat(10_000))];
    let calls = (0..10_000).take_while(|_| call(sprintf, &arguments, &context).is_ok()).count();
    assert!((10..10_000).contains(&calls), "{calls}");
    assert!(context.spent().is_some());
    let error = call(sprintf, &[r#""""#.to_owned(), "[]".to_owned()], &context).unwrap_err();
    assert!(error.to_string().contains("evaluation"), "whatever comes after it fails too: {error}");
}

#[test]
fn the_next_evaluation_has_a_budget_of_its_own() {
    let mut context = Context::new(0);
    let find = qosm_rego::builtin("regex.find_n").unwrap();
    let arguments = [r#""[ab]*a[ab]{100}c|a|b""#.to_owned(), format!("\"{}\"", "ab".repeat(50_000)), "-1".to_owned()];
    assert!(call(find, &arguments, &context).is_err());
    context.restart(0, Budget::default());
    assert_eq!(context.spent(), None);
    let small = [r#""a+""#, r#""baab""#, "-1"].map(str::to_owned);
    assert_eq!(call(find, &small, &context), Ok(Some(r#"["aa"]"#.to_owned())));
}
