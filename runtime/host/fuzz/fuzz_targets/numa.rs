//! `memory.numa_stat`, `numa_maps` and the lists of CPUs and nodes: where memory lies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::numa(bytes));
