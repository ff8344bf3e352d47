//! `memory.stat`: what the memory is used for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::memory_stat(bytes));
