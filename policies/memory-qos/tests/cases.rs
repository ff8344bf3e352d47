//! Runs the cases in `tests/cases` against the policy's native code.

use memory_qos::MemoryQosPolicy;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<MemoryQosPolicy>::default)
}
