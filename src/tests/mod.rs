//! What tests of several rooms stand on: the exhaustive searches, the simulated servers and their
//! storms, the bytes that are sent, and the claims of the fuzz targets.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod epochs;
#[cfg(test)]
mod fingerprint;
#[cfg(any(test, all(fuzzing, feature = "embedded")))]
#[cfg_attr(
    not(fuzzing),
    expect(unreachable_pub, reason = "the fuzz targets name it")
)]
pub mod fuzzing;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod house;
#[cfg(test)]
mod model;
#[cfg(test)]
mod search;
#[cfg(test)]
mod sent;
#[cfg(test)]
mod served;
#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod storms;
