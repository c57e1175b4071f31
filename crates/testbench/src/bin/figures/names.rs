//! The meaning of the names in a crate's modules, and the targets of paths, also through
//! re-exports.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, ItemUse, UseTree};

pub(crate) fn joined(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

fn parent(module: &str) -> Option<&str> {
    if module.is_empty() {
        return None;
    }
    Some(module.rsplit_once("::").map_or("", |(parent, _)| parent))
}

/// The meanings of a module's names.
#[derive(Debug, Default)]
struct Scope {
    imported: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
}

/// The names of a crate.
#[derive(Debug, Default)]
pub(crate) struct Names {
    scopes: BTreeMap<String, Scope>,
    /// Modules that have a file of their own.
    pub(crate) files: BTreeSet<String>,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Module(String),
    /// Something in a module.
    Item(String),
}

/// The most re-exports to follow; more are a circle.
const STEPS: usize = 8;

impl Names {
    pub(crate) fn add_file(&mut self, module: &str, items: &[Item]) {
        self.files.insert(module.to_owned());
        self.collect(module, items);
    }

    fn collect(&mut self, module: &str, items: &[Item]) {
        self.scopes.entry(module.to_owned()).or_default();
        for item in items {
            if let Item::Mod(item) = item {
                let below = joined(module, &item.ident.to_string());
                if let Some((_, items)) = &item.content {
                    self.collect(&below, items);
                }
                continue;
            }
            let scope = self.scopes.entry(module.to_owned()).or_default();
            if let Item::Use(item) = item {
                for leaf in leaves(item) {
                    match leaf.name {
                        Some(name) => drop(scope.imported.insert(name, leaf.path)),
                        None => scope.globs.push(leaf.path),
                    }
                }
            } else if let Some(name) = name_of(item) {
                scope.defined.insert(name);
            }
        }
    }

    /// The target of a path in this module, if that is in this crate.
    pub(crate) fn resolve(&self, from: &str, path: &[String]) -> Option<End> {
        self.follow(from, path, STEPS)
    }

    fn follow(&self, from: &str, path: &[String], steps: usize) -> Option<End> {
        let (first, rest) = path.split_first()?;
        match &**first {
            "crate" => self.walk("", rest, steps),
            "self" => self.walk(from, rest, steps),
            "super" => self.walk(parent(from)?, rest, steps),
            _ => self.step(from, path, steps),
        }
    }

    /// Resolves the rest of a path in a module. An unknown name is taken for its own: a macro may
    /// have made it.
    fn walk(&self, at: &str, path: &[String], steps: usize) -> Option<End> {
        match path.split_first() {
            None => Some(End::Module(at.to_owned())),
            Some((first, rest)) if first == "super" => self.walk(parent(at)?, rest, steps),
            Some((first, rest)) if first == "self" => self.walk(at, rest, steps),
            Some(_) => {
                let found = self.step(at, path, steps);
                Some(found.unwrap_or_else(|| End::Item(at.to_owned())))
            }
        }
    }

    fn step(&self, at: &str, path: &[String], steps: usize) -> Option<End> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let scope = self.scopes.get(at)?;
        let below = joined(at, first);
        if self.scopes.contains_key(&below) {
            return self.walk(&below, rest, steps);
        }
        if scope.defined.contains(first) {
            return Some(End::Item(at.to_owned()));
        }
        if let Some(import) = scope.imported.get(first) {
            return match self.follow(at, import, steps)? {
                End::Module(module) => self.walk(&module, rest, steps),
                End::Item(module) => Some(End::Item(module)),
            };
        }
        let mut globs = scope.globs.iter();
        globs.find_map(|glob| match self.follow(at, glob, steps)? {
            End::Module(module) if module != at => self.step(&module, path, steps),
            _ => None,
        })
    }

    /// The module with a file that this one is in.
    pub(crate) fn file_of<'a>(&self, mut module: &'a str) -> &'a str {
        while !self.files.contains(module) {
            let Some(above) = parent(module) else { break };
            module = above;
        }
        module
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// One path of a `use`.
pub(crate) struct Leaf {
    pub(crate) path: Vec<String>,
    /// Its name here; nothing for all of a module.
    pub(crate) name: Option<String>,
    pub(crate) line: usize,
}

pub(crate) fn leaves(item: &ItemUse) -> Vec<Leaf> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        collect_leaves(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn collect_leaves(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let mut leaf = |name: &syn::Ident, called: Option<&syn::Ident>| {
        let mut path = before.clone();
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        }
        let called = called.map(ToString::to_string);
        found.push(Leaf {
            name: called.or_else(|| path.last().cloned()),
            path,
            line: name.span().start().line,
        });
    };
    match tree {
        UseTree::Name(tree) => leaf(&tree.ident, None),
        UseTree::Rename(tree) => leaf(&tree.ident, Some(&tree.rename)),
        UseTree::Glob(tree) => found.push(Leaf {
            path: before.clone(),
            name: None,
            line: tree.star_token.spans[0].start().line,
        }),
        UseTree::Path(tree) => {
            before.push(tree.ident.to_string());
            collect_leaves(&tree.tree, before, found);
            before.pop();
        }
        UseTree::Group(tree) => {
            for tree in &tree.items {
                collect_leaves(tree, before, found);
            }
        }
    }
}
