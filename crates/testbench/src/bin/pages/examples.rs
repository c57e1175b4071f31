//! The Rust examples of pages, in fresh crates with the dependency lines of their pages.
//!
//! Pages with the same lines share a crate, because each crate builds Lockkeeper again.

use std::fs;
use std::path::Path;
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use toml::{Table, Value};

/// Where a reader's clone is, as the pages say.
const CLONE: &str = "../lockkeeper";
/// Connects only where somebody has made the chroot before.
const CHROOT: &str = ":2181/";

/// A crate of a reader: its dependency lines, and the examples with the names of their files.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    dependencies: Table,
    examples: Vec<(String, String)>,
}

/// The crates that readers of these pages have.
pub(crate) fn crates(pages: &[(String, String)]) -> Result<Vec<Fresh>, String> {
    let mut crates: Vec<Fresh> = Vec::new();
    for (page, text) in pages {
        let of_page = of_page(page, text)?;
        if of_page.examples.is_empty() {
            continue;
        }
        if of_page.dependencies.is_empty() {
            return Err(format!("{page} has Rust examples and no dependency lines"));
        }
        let is_same = |other: &&mut Fresh| other.dependencies == of_page.dependencies;
        match crates.iter_mut().find(is_same) {
            Some(same) => same.examples.extend(of_page.examples),
            None => crates.push(of_page),
        }
    }
    Ok(crates)
}

fn of_page(page: &str, text: &str) -> Result<Fresh, String> {
    let mut fresh = Fresh::default();
    for (language, line, block) in blocks(text) {
        match language.split(',').next() {
            Some("toml") => add(&mut fresh.dependencies, &block, page, line)?,
            Some("rust") if block.contains(CHROOT) => {
                let why = "connects to a chroot, which a fresh server does not have";
                return Err(format!("{page}:{line}: an example {why}"));
            }
            Some("rust") => {
                let stem = page.trim_end_matches(".md").replace(['/', '-'], "_");
                let name = format!("{}_{line}", stem.to_lowercase());
                fresh.examples.push((name, block));
            }
            _ => {}
        }
    }
    Ok(fresh)
}

/// Adds the tables of dependencies of a block. Settings of the tool are TOML, too.
fn add(known: &mut Table, block: &str, page: &str, line: usize) -> Result<(), String> {
    let fail = |why: &dyn std::fmt::Display| format!("{page}:{line}: {why}");
    let given: Table = block.parse().map_err(|error| fail(&error))?;
    for kind in ["dependencies", "dev-dependencies"] {
        let Some(Value::Table(given)) = given.get(kind) else {
            continue;
        };
        let known = known
            .entry(kind)
            .or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(known) = known else { continue };
        for (name, dependency) in given {
            if known.insert(name.clone(), dependency.clone()).is_some() {
                return Err(fail(&format_args!("{name} is said twice on this page")));
            }
        }
    }
    Ok(())
}

/// The code blocks of a page: the language, the line and the text of each.
fn blocks(text: &str) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize, String)> = None;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                let line = text[..range.start].matches('\n').count() + 1;
                open = Some((language.to_string(), line, String::new()));
            }
            Event::Text(part) => {
                if let Some((_, _, block)) = &mut open {
                    block.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => found.extend(open.take()),
            _ => {}
        }
    }
    found
}

/// Compiles all examples, without the network; how many there are.
pub(crate) fn compile(checkout: &Path, crates: &[Fresh]) -> Result<usize, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = checkout.join(target.unwrap_or_else(|| "target".into()));
    for (number, fresh) in crates.iter().enumerate() {
        let folder = target.join("pages").join(number.to_string());
        write(checkout, &folder, fresh).map_err(|error| format!("{folder:?}: {error}"))?;
        let checked = Command::new("cargo")
            .args(["check", "--quiet", "--offline", "--tests", "--keep-going"])
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", &target)
            .status()
            .map_err(|error| format!("cargo: {error}"))?;
        if !checked.success() {
            let names: Vec<&str> = fresh.examples.iter().map(|(name, _)| &**name).collect();
            return Err(format!(
                "not all of these compile where they are pasted (page and line): {names:?}"
            ));
        }
    }
    Ok(crates.iter().map(|fresh| fresh.examples.len()).sum())
}

/// Each example is a test of its own: such a file may have a main function, and needs none.
fn write(checkout: &Path, folder: &Path, fresh: &Fresh) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("src"))?;
    fs::create_dir_all(folder.join("tests"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    for (name, text) in &fresh.examples {
        fs::write(folder.join(format!("tests/{name}.rs")), text)?;
    }
    let clone = checkout.to_string_lossy();
    let dependencies = fresh.dependencies.to_string().replace(CLONE, &clone);
    // The last line keeps cargo from asking the checkout above for it.
    let manifest = format!(
        "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         {dependencies}\n[lints.rust]\ndead_code = \"allow\"\n\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::copy(checkout.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "```toml\n[dependencies]\nlockkeeper = { path = \"../lockkeeper\" }\n```\n";

    fn found(pages: &[(&str, String)]) -> Result<Vec<Fresh>, String> {
        let pages: Vec<_> = pages
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.clone()))
            .collect();
        crates(&pages)
    }

    #[test]
    fn an_example_is_found_with_the_dependency_lines_of_its_page() {
        let page = format!("# A page\n\n{LINES}\n```rust,no_run\nfn main() {{}}\n```\n");
        let other = page.replace("main", "other");

        let crates = found(&[("README.md", page), ("docs/a-b.md", other)]).unwrap();

        let [one] = &*crates else {
            panic!("{crates:?}")
        };
        let names: Vec<&str> = one.examples.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["readme_8", "docs_a_b_8"]);
        assert!(one.dependencies.to_string().contains(CLONE));
    }

    #[test]
    fn settings_of_the_tool_are_no_dependency_lines() {
        let settings = "```toml\nservers = \"zk1:2181\"\n```\n";
        let page = format!("{settings}\n```rust\nfn main() {{}}\n```\n");

        let error = found(&[("docs/a.md", page)]).unwrap_err();

        assert!(error.contains("no dependency lines"), "{error}");
    }

    #[test]
    fn an_example_that_fails_on_a_fresh_server_is_refused() {
        let connect = "Keeper::connect(\"zk1:2181/app\")";
        let page = format!("{LINES}\n```rust\n{connect}\n```\n");

        let error = found(&[("docs/a.md", page)]).unwrap_err();

        assert!(error.contains("docs/a.md:6"), "{error}");
    }
}
