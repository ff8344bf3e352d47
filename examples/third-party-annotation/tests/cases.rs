//! The cases in `cases/`, over the policy's own code. The engine's tests play the same files to the component.

use qosm_sdk::testing::{Failures, Native, run_folder};
use service_class::ServiceClass;

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<ServiceClass>::default)
}
