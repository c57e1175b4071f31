//! The embedded server's frames, requests and four-letter words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::codec(data));
