//! The layer of an image: a tar archive, compressed or not.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::layer(bytes));
