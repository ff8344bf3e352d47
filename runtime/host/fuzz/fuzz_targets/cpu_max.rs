//! `cpu.max`: quota and period.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::oracle::cpu_max(bytes));
