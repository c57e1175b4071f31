//! Clients of the embedded server that say anything, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::conversation(data));
