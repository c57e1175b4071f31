//! The modules of a crate, found by their declarations, as the compiler finds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

use crate::source::{Source, is_for_tests};

/// A module that has a file of its own, and is in ordinary builds.
pub(crate) struct Module {
    /// The names on the way to it; none for the crate itself.
    pub(crate) path: Vec<String>,
    pub(crate) source: Source,
}

impl Module {
    pub(crate) fn name(&self) -> String {
        self.path.join("::")
    }
}

/// All modules of the crate whose root is this file.
pub(crate) fn modules(tree: &Path, root: &str) -> Result<Vec<Module>, String> {
    let mut all = Vec::new();
    let root = Path::new(root);
    read(tree, root, &folder_of(root), Vec::new(), &mut all)?;
    Ok(all)
}

/// Reads a module, and those that it declares: their files are in this folder.
fn read(
    tree: &Path,
    file: &Path,
    folder: &Path,
    path: Vec<String>,
    all: &mut Vec<Module>,
) -> Result<(), String> {
    let text = fs::read_to_string(tree.join(file))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let source = Source::new(&file.to_string_lossy(), &text)?;
    if source.tree.attrs.iter().any(is_test_attribute) {
        return Ok(());
    }
    let mut declared = Vec::new();
    declarations(&source.tree.items, folder, &path, &mut declared);
    all.push(Module { path, source });
    for one in declared {
        let below = one.folder.join(&one.name);
        let named = one.named.map(|named| folder_of(file).join(named));
        let usual = one.folder.join(format!("{}.rs", one.name));
        let mut found = named.into_iter().chain([usual, below.join("mod.rs")]);
        let Some(found) = found.find(|file| tree.join(file).is_file()) else {
            return Err(format!("{}: no file for mod {}", file.display(), one.name));
        };
        read(tree, &found, &below, one.path, all)?;
    }
    Ok(())
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

/// A module without a body.
struct Declared {
    name: String,
    /// The file that an attribute names.
    named: Option<String>,
    /// The default place of its file.
    folder: PathBuf,
    path: Vec<String>,
}

/// The modules that the items declare.
fn declarations(items: &[Item], folder: &Path, path: &[String], found: &mut Vec<Declared>) {
    for item in items {
        let Item::Mod(item) = item else { continue };
        let name = item.ident.to_string();
        let mut below = path.to_vec();
        below.push(name.clone());
        match &item.content {
            Some((_, items)) => declarations(items, &folder.join(name), &below, found),
            None => found.push(Declared {
                name,
                named: path_attribute(&item.attrs),
                folder: folder.to_owned(),
                path: below,
            }),
        }
    }
}

fn is_test_attribute(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    let tokens = &list.tokens;
    list.path.is_ident("cfg") && is_for_tests(&wrapped(tokens))
}

/// The tokens of `cfg(...)` again.
fn wrapped(tokens: &proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    use proc_macro2::{Delimiter, Group, Ident, Span, TokenTree};

    let word = TokenTree::Ident(Ident::new("cfg", Span::call_site()));
    let group = TokenTree::Group(Group::new(Delimiter::Parenthesis, tokens.clone()));
    [word, group].into_iter().collect()
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) = &pair.value
        else {
            return None;
        };
        pair.path.is_ident("path").then(|| text.value())
    })
}

/// All Rust files below a folder of the tree, without those of builds and of hidden folders.
pub(crate) fn rust_files(tree: &Path, folder: &str) -> BTreeSet<String> {
    files(tree, folder, "rs")
}

/// All files below a folder, or the file itself, whose names end so.
pub(crate) fn files(tree: &Path, folder: &str, end: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let path = tree.join(folder);
    if path.is_file() && folder.ends_with(&format!(".{end}")) {
        found.insert(folder.to_owned());
    }
    let Ok(entries) = fs::read_dir(path) else {
        return found;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "target" && !name.starts_with('.') {
            found.extend(files(tree, &format!("{folder}/{name}"), end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_where_the_compiler_finds_them() {
        let tree = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "src/lib.rs",
            "mod a;\nmod b { mod c; }\n#[path = \"e.rs\"]\nmod d;\n",
        );
        write("src/a.rs", "mod f;\n#[cfg(test)]\nmod tests;\n");
        write("src/a/f/mod.rs", "mod g;");
        write("src/a/f/g.rs", "#![cfg(test)]");
        write("src/b/c.rs", "");
        write("src/e.rs", "");
        write("src/left/over.rs", "");
        write("src/target/built.rs", "");
        let found = modules(tree.path(), "src/lib.rs").unwrap();
        let names: Vec<String> = found.iter().map(Module::name).collect();

        assert_eq!(names, ["", "a", "a::f", "b::c", "d"]);
        assert_eq!(rust_files(tree.path(), "src").len(), 7);
    }
}
