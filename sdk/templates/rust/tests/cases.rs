//! The cases in `cases/`, played to the policy's own code. `qosm policy test` plays them to the component as well.

use my_policy::MyPolicy;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<MyPolicy>::default)
}
