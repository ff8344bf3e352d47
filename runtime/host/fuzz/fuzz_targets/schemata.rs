//! resctrl's `schemata`: what groups may use.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::schemata(bytes));
