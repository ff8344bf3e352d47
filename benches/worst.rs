//! Each function that the host answers for Rego, with the worst that it can be asked: one evaluation takes no more than 50 ms of CPU time.
//! Prints the dearest, and fails where one takes longer.

use std::process::ExitCode;
use std::time::Duration;

use qosm_benches::{is_wanted, length};
use qosm_rego::{cpu_time, table};

#[path = "../runtime/rego/tests/worst/arguments.rs"]
mod arguments;
#[path = "../runtime/rego/tests/worst/evaluation.rs"]
mod evaluation;

/// The CPU time of an evaluation.
const PROMISED: Duration = Duration::from_millis(50);
/// A case that took too long is measured again: what a machine does beside makes CPU time dear, and not each time.
const ATTEMPTS: u32 = 30;
/// How many are shown.
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
