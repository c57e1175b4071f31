//! What commands live through while servers and links are hurt.

mod silence;
mod timeline;
