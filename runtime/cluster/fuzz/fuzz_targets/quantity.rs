//! Kubernetes quantities.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_cluster::fuzz_checks::quantity(text));
