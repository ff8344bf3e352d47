//! Manifests and indexes, from a registry or a layout.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::manifest(bytes));
