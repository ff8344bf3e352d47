//! Runs the cases in `cases/` with the policy's native code. `qosm policy test` runs them with the component as well.

use my_policy::MyPolicy;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<MyPolicy>::default)
}
