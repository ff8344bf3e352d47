//! Candidate signatures, in both of cosign's formats.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::signature(bytes));
