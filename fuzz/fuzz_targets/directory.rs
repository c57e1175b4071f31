//! Names in a lock directory: tickets, their order, their dialect, permits.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::directory(data));
