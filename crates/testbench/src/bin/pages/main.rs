//! Compiles the Rust examples of the pages as a reader would who pastes them into a fresh crate,
//! beside the dependency lines of the page.
//!
//! ```text
//! cargo run -q --all-features --bin pages
//! ```
//!
//! That every link leads somewhere is a unit test below. What documentation tests see is not
//! enough: they have all features, the dependencies of the tests, and lines that readers see as
//! comments.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for developers"
)]

mod examples;
#[cfg(test)]
mod links;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The checkout that this was built in.
fn checkout() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = ours.ancestors().nth(2);
    root.expect("crates/testbench").to_owned()
}

/// The README and the pages of `docs/`, with their names.
fn pages(checkout: &Path) -> Vec<(String, String)> {
    let docs = fs::read_dir(checkout.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = docs
        .map(|name| format!("docs/{}", name.to_string_lossy()))
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.push("README.md".into());
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(checkout.join(&name)).expect("a page");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

fn main() -> ExitCode {
    let checkout = checkout();
    let tried = examples::crates(&pages(&checkout))
        .and_then(|crates| examples::compile(&checkout, &crates));
    match tried {
        Ok(count) => {
            println!("{count} examples compile where they are pasted");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
