//! Other clients beside the tool and the library: crowds of several languages, and what each reads
//! of the others.

mod book;
mod clients;
mod crowd;
pub(crate) mod members;
mod tools;
