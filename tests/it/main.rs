//! The integration suite.
fn main() {}
