//! Calls each function that the host provides with its most expensive arguments: regardless of a policy's calls, one
//! evaluation takes at most 32 MiB and ends by its counted work, without the clock.
//!
//! Arguments and results are passed as texts, as between a module and its host. The limit of 50 ms of CPU time holds on
//! an idle machine: `benches/worst.rs` checks it.

mod allocator;
mod arguments;
mod evaluation;

use std::time::Duration;

use qosm_rego::{Budget, Context, cpu_time, table};

use self::evaluation::{call, evaluation};

/// Maximum CPU time on any machine; work that is not counted takes seconds.
const TIME: Duration = Duration::from_secs(1);
const MEMORY: usize = 32 << 20;

/// Maximum total length of a call's arguments in bytes; a module has 32 MiB for everything.
const HANDED: usize = 2 << 20;

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
            let begun = cpu_time();
            let (ended, memory) = allocator::most_while(|| evaluation(builtin, arguments));
            let time = cpu_time() - begun;
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
