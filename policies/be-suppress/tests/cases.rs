//! Runs the cases in `tests/cases` against the policy's native code.

use be_suppress::BeSuppress;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<BeSuppress>::default)
}
