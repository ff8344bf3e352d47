//! Runs the cases in `tests/cases` against the policy's native code. The engine's tests run the same files against the component.

use cpu_burst::CpuBurst;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<CpuBurst>::default)
}
