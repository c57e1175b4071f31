//! `bench`: what locks cost on an ensemble, against the floor of raw operations.
#![expect(dead_code, reason = "the command comes next")]

mod floor;
mod ground;
mod ours;
mod sample;
