//! `memory.stat`: sizes of anonymous memory and page cache.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::memory_stat(bytes));
