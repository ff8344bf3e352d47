//! Runs the cases in `cases/` with the policy's native code. The engine's tests run the same files with the component.

use qosm_sdk::testing::{Failures, Native, run_folder};
use service_class::ServiceClass;

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<ServiceClass>::default)
}
