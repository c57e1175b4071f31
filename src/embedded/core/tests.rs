//! Behaviour of the whole core, without any I/O.
