//! Manifests and lists of them, as a registry or a layout has them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::manifest(bytes));
