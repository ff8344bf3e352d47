//! Manifests, YAML or JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_cluster::fuzz_checks::objects(text));
