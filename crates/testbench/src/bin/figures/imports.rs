//! Each module's imports from the others, by its `use`s and by its full paths.
//!
//! A path leads to the module that defines its end. The arguments of macros are searched for paths.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, Visibility};

use crate::circles::Graph;
use crate::library::Module;
use crate::names::{End, Names, joined, leaves};

/// One path of a module that leads into another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    /// Modules that have files.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) written: String,
}

/// A circle, with the imports that make it.
#[derive(Debug)]
pub(crate) struct Circle {
    /// The module whose parts these are; empty for the crate.
    pub(crate) within: String,
    pub(crate) parts: Vec<String>,
    pub(crate) imports: Vec<Vec<Import>>,
}

/// All imports of a crate, without those of its root, which may name everything.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    modules: BTreeSet<String>,
    all: BTreeSet<Import>,
}

impl Imports {
    pub(crate) fn of(modules: &[&Module]) -> Self {
        let mut names = Names::default();
        for module in modules {
            names.add_file(&module.name(), &module.source.tree.items);
        }
        let mut all = BTreeSet::new();
        for module in modules.iter().filter(|module| !module.path.is_empty()) {
            let mut visitor = Visitor {
                names: &names,
                file: &module.source.file,
                module: module.name(),
                seen: BTreeSet::new(),
                found: &mut all,
            };
            visitor.visit_file(&module.source.tree);
        }
        Self {
            modules: names.files,
            all,
        }
    }

    /// The parts of a module, and which of them import from which. A part includes everything below
    /// it.
    pub(crate) fn parts_of(&self, within: &str) -> Graph {
        let mut graph = Graph::default();
        for module in &self.modules {
            if let Some(part) = part(within, module) {
                graph.add_node(&part);
            }
        }
        for import in &self.all {
            if let (Some(from), Some(to)) = (part(within, &import.from), part(within, &import.to)) {
                if from != to {
                    graph.add(&from, &to, 1);
                }
            }
        }
        graph
    }

    fn between(&self, within: &str, from: &str, to: &str) -> Vec<Import> {
        let is_one = |import: &&Import| {
            part(within, &import.from).as_deref() == Some(from)
                && part(within, &import.to).as_deref() == Some(to)
        };
        self.all.iter().filter(is_one).cloned().collect()
    }

    /// The circles between the parts of the crate, and between the parts of each of its modules.
    pub(crate) fn circles(&self) -> Vec<Circle> {
        let mut all = Vec::new();
        for within in &self.modules {
            for parts in self.parts_of(within).circles() {
                let next = parts.iter().cycle().skip(1);
                let imports = parts.iter().zip(next);
                let imports = imports.map(|(from, to)| self.between(within, from, to));
                all.push(Circle {
                    within: within.clone(),
                    imports: imports.collect(),
                    parts,
                });
            }
        }
        all
    }
}

/// The part of a module in which another one is, if it is below it.
fn part(within: &str, module: &str) -> Option<String> {
    let below = if within.is_empty() {
        module
    } else {
        module.strip_prefix(within)?.strip_prefix("::")?
    };
    let first = below.split("::").next()?;
    (!first.is_empty()).then(|| first.to_owned())
}

struct Visitor<'a> {
    names: &'a Names,
    file: &'a str,
    /// Inline modules too.
    module: String,
    /// The paths that were counted already.
    seen: BTreeSet<String>,
    found: &'a mut BTreeSet<Import>,
}

impl Visitor<'_> {
    fn add(&mut self, path: &[String], written: String, line: usize) {
        let Some(End::Module(to) | End::Item(to)) = self.names.resolve(&self.module, path) else {
            return;
        };
        let from = self.names.file_of(&self.module);
        let to = self.names.file_of(&to);
        if from != to && self.seen.insert(written.clone()) {
            self.found.insert(Import {
                from: from.to_owned(),
                to: to.to_owned(),
                file: self.file.to_owned(),
                line,
                written,
            });
        }
    }

    /// A path that is written out. If its first name was imported itself, that import was counted.
    fn written_out(&mut self, path: &[String], line: usize) {
        let [first, _, ..] = path else { return };
        let is_from_here = matches!(&**first, "crate" | "self" | "super");
        if !is_from_here {
            let first = std::slice::from_ref(first);
            let Some(End::Module(_)) = self.names.resolve(&self.module, first) else {
                return;
            };
        }
        self.add(path, path.join("::"), line);
    }

    fn search(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, wanted: char| match tokens.get(at) {
            Some(TokenTree::Punct(punct)) => punct.as_char() == wanted,
            _ => false,
        };
        let mut at = 0;
        while at < tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.search(group.stream());
            }
            let is_after_dot = at > 0 && is(at - 1, '.');
            let line = tokens[at].span().start().line;
            let mut path = Vec::new();
            while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
                path.push(ident.to_string());
                at += 1;
                if !(is(at, ':') && is(at + 1, ':')) {
                    break;
                }
                at += 2;
            }
            if path.is_empty() {
                at += 1;
            } else if !is_after_dot {
                self.written_out(&path, line);
            }
        }
    }
}

impl Visit<'_> for Visitor<'_> {
    fn visit_item_use(&mut self, item: &ItemUse) {
        for leaf in leaves(item) {
            let mut written = leaf.path.join("::");
            if leaf.name.is_none() {
                written.push_str("::*");
            }
            self.add(&leaf.path, written, leaf.line);
        }
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        let below = joined(&self.module, &item.ident.to_string());
        let outer = std::mem::replace(&mut self.module, below);
        visit::visit_item_mod(self, item);
        self.module = outer;
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter();
        let segments: Vec<String> = segments.map(|one| one.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            let first = path.segments.first();
            let line = first.map_or(0, |one| one.ident.span().start().line);
            self.written_out(&segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &Macro) {
        self.search(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    /// Visibility paths are not imports.
    fn visit_visibility(&mut self, _: &Visibility) {}

    fn visit_attribute(&mut self, _: &Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let modules: Vec<Module> = files
            .iter()
            .map(|(path, text)| Module {
                path: path
                    .split("::")
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect(),
                source: Source::new(&format!("{path}.rs"), text).unwrap(),
            })
            .collect();
        Imports::of(&modules.iter().collect::<Vec<_>>())
    }

    fn pairs(imports: &Imports) -> Vec<(&str, &str)> {
        let pairs = imports.all.iter().map(|one| (&*one.from, &*one.to));
        let pairs: BTreeSet<_> = pairs.collect();
        pairs.into_iter().collect()
    }

    #[test]
    fn paths_are_followed_to_where_their_ends_are_defined() {
        let found = imports(&[
            ("", "mod a; mod b; pub use b::c::Thing; pub use b::Other;"),
            ("a", "use crate::Thing; use std::fmt;"),
            (
                "b",
                "pub mod c; mod d; pub(crate) use self::d::Hidden; pub struct Other;",
            ),
            ("b::c", "use super::Other; pub struct Thing;"),
            ("b::d", "pub struct Hidden; fn a(_: crate::a::X) {}"),
            (
                "e",
                "use crate::b; fn f() { b::Hidden::new(); vec![crate::a::Y]; }",
            ),
            (
                "f",
                "use crate::b::*; pub(in crate::e) fn g(_: Hidden) { c::Thing; }",
            ),
        ]);

        let expected = [
            ("a", "b::c"),
            ("b", "b::d"),
            ("b::c", "b"),
            ("b::d", "a"),
            ("e", "a"),
            ("e", "b"),
            ("e", "b::d"),
            ("f", "b"),
            ("f", "b::c"),
        ];
        assert_eq!(pairs(&found), expected);
    }

    #[test]
    fn circles_between_parts_are_found_but_not_those_with_the_whole() {
        let found = imports(&[
            ("", "mod a; mod b; use a::X;"),
            ("a", "mod c; mod d; use c::C; use crate::b::B;"),
            ("a::c", "use super::X; use super::d::D;"),
            ("a::d", "use super::c::C;"),
            ("b", "#[cfg(test)] mod tests { use crate::a::X; }"),
        ]);
        let circles = found.circles();
        let parts: Vec<_> = circles
            .iter()
            .map(|one| (&*one.within, one.parts.join(" ")))
            .collect();

        assert_eq!(parts, [("a", "c d".to_owned())]);
        assert_eq!(circles[0].imports[0][0].written, "super::d::D");
    }
}
