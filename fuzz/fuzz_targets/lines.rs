//! The data of nodes: the lines of tickets, marks, notes, values of leaders, limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lockkeeper::fuzzing::lines(data));
