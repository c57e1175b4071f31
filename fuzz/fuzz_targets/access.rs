//! Access lists, as users write them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::access(data));
