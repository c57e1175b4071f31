//! States, told apart by 128 bits each. (pure)

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// 128 bits, mixed field by field: with ten million states the chance that two are taken for one is
/// about 10^-25. (The standard library's hasher has 64 bits, and takes most of the time where
/// nothing is optimised.)
pub(in crate::tests) fn fingerprint(value: &(impl Hash + ?Sized)) -> u128 {
    let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    value.hash(&mut mixer);
    mixer.mix(0);
    mixer.0
}

struct Mixer(u128);

impl Mixer {
    /// A bijection of what was mixed before, for each value.
    fn mix(&mut self, value: u128) {
        let mixed = (self.0 ^ value).wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 61);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(16) {
            let mut value = [0; 16];
            value[..chunk.len()].copy_from_slice(chunk);
            self.mix(u128::from_ne_bytes(value));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value.into());
    }

    fn write_u128(&mut self, value: u128) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u128);
    }

    fn finish(&self) -> u64 {
        self.0 as u64
    }
}

/// Fingerprints are random enough as they are.
#[derive(Default)]
pub(in crate::tests) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(in crate::tests) type ByPrint<T> = HashMap<u128, T, BuildHasherDefault<AsIs>>;
