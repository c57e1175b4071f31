//! Words of the command line: permits, durations, credentials.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The tool has no library; this file needs nothing else of it.
#[path = "../../src/bin/lockkeeper/grammar.rs"]
mod grammar;

fuzz_target!(|data: &[u8]| grammar::words(data));
