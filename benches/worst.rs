//! The promise: each function that the host provides for Rego takes at most 50 ms of CPU time in one evaluation, with its worst input.
//! Prints the most expensive ones, and fails if one takes longer.

use std::process::ExitCode;
use std::time::Duration;

use qosm_benches::{is_wanted, length};
use qosm_rego::{cpu_time, table};

#[path = "../runtime/rego/tests/worst/arguments.rs"]
mod arguments;
#[path = "../runtime/rego/tests/worst/evaluation.rs"]
mod evaluation;

/// Maximum CPU time of an evaluation.
const PROMISED: Duration = Duration::from_millis(50);
/// Maximum number of attempts for a case: other load on the machine raises the CPU time, but not in every attempt.
const ATTEMPTS: u32 = 30;
/// Number of cases that are printed.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    if !is_wanted("worst") {
        return ExitCode::SUCCESS;
    }
    let mut costs = Vec::new();
    for builtin in table::answered() {
        for (case, arguments) in arguments::worst(builtin.name()).iter().enumerate() {
            let mut least = Duration::MAX;
            for _ in 0..length(ATTEMPTS, 1) {
                let begun = cpu_time();
                evaluation::evaluation(builtin, arguments);
                least = least.min(cpu_time() - begun);
                if least <= PROMISED {
                    break;
                }
            }
            costs.push((least, builtin.name(), case));
        }
    }
    costs.sort_unstable_by(|a, b| b.cmp(a));
    println!("the dearest of {} evaluations", costs.len());
    for (time, name, case) in costs.iter().take(SHOWN) {
        println!("{:>8.1} ms  {name}, case {case}", time.as_secs_f64() * 1000.0);
    }
    let dearest = costs.first().map_or(Duration::ZERO, |(time, ..)| *time);
    if length(dearest > PROMISED, false) {
        println!("more than {PROMISED:?} was promised against");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
