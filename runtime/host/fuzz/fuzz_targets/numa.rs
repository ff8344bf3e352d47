//! `memory.numa_stat`, `numa_maps`, and lists of CPUs and nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::numa(bytes));
