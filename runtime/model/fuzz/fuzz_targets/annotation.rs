//! A pod's annotation, over ConfigMaps and defaults.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_model::layering::fuzz_checks::annotation(text));
