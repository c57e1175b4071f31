//! Words of the command line: permits, durations, credentials.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper_cli::grammar::words(data));
