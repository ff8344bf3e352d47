//! Runs the cases in `tests/cases` against the policy's native code.

use block_io::BlockIo;
use qosm_sdk::testing::{Failures, Native, run_folder};

#[test]
fn the_cases_hold() -> Result<(), Failures> {
    run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<BlockIo>::default)
}
