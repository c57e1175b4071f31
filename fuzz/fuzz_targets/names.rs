//! Lock names, as given and as escaped.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::names(data));
