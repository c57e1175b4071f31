//! What a crate defines: its functions with their lengths, and its types.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{
    Block, Ident, ImplItemFn, ItemEnum, ItemFn, ItemMod, ItemStruct, ItemTrait, ItemType,
    ItemUnion, TraitItemFn,
};

use crate::library::Module;

/// A named item and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Defined {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: usize,
    /// For a function: the lines between its braces.
    pub(crate) lines: usize,
    /// The module, and the function if it is inside one.
    scope: String,
}

#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) functions: Vec<Defined>,
    pub(crate) types: Vec<Defined>,
    pub(crate) modules: Vec<Defined>,
}

impl Items {
    pub(crate) fn of<'a>(modules: impl IntoIterator<Item = &'a Module>) -> Self {
        let mut all = Self::default();
        for module in modules {
            let mut visitor = Visitor {
                file: &module.source.file,
                scope: module.path.clone(),
                found: &mut all,
            };
            visitor.visit_file(&module.source.tree);
        }
        all
    }

    /// The longest first.
    pub(crate) fn functions_above(&self, bound: usize) -> Vec<&Defined> {
        let long = self.functions.iter().filter(|one| one.lines > bound);
        let mut long: Vec<&Defined> = long.collect();
        long.sort_by_key(|one| std::cmp::Reverse(one.lines));
        long
    }

    /// The names that more than one type has. Forms of one type for different builds count once:
    /// they have one scope.
    pub(crate) fn types_defined_twice(&self) -> BTreeMap<&str, Vec<&Defined>> {
        let mut seen = BTreeSet::new();
        let mut names: BTreeMap<&str, Vec<&Defined>> = BTreeMap::new();
        for one in &self.types {
            if seen.insert((&one.scope, &one.name)) {
                names.entry(&one.name).or_default().push(one);
            }
        }
        names.retain(|_, all| all.len() > 1);
        names
    }
}

struct Visitor<'a> {
    file: &'a str,
    scope: Vec<String>,
    found: &'a mut Items,
}

impl Visitor<'_> {
    fn defined(&self, name: &Ident, lines: usize) -> Defined {
        Defined {
            name: name.to_string(),
            file: self.file.to_owned(),
            line: name.span().start().line,
            lines,
            scope: self.scope.join("::"),
        }
    }

    fn a_type(&mut self, name: &Ident) {
        let one = self.defined(name, 0);
        self.found.types.push(one);
    }

    fn a_function(&mut self, name: &Ident, body: &Block) {
        let line = |span: Span| span.start().line;
        let braces = body.brace_token.span;
        let lines = (line(braces.close()) - line(braces.open())).saturating_sub(1);
        let one = self.defined(name, lines);
        self.found.functions.push(one);
    }

    fn within(&mut self, name: &Ident, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name.to_string());
        visit(self);
        self.scope.pop();
    }
}

impl Visit<'_> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.a_function(&item.sig.ident, &item.block);
        self.within(&item.sig.ident, |this| visit::visit_item_fn(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.a_function(&item.sig.ident, &item.block);
        self.within(&item.sig.ident, |this| {
            visit::visit_impl_item_fn(this, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(body) = &item.default {
            self.a_function(&item.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        let one = self.defined(&item.ident, 0);
        self.found.modules.push(one);
        self.within(&item.ident, |this| visit::visit_item_mod(this, item));
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        self.a_type(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        self.a_type(&item.ident);
    }

    fn visit_item_union(&mut self, item: &ItemUnion) {
        self.a_type(&item.ident);
    }

    fn visit_item_type(&mut self, item: &ItemType) {
        self.a_type(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &ItemTrait) {
        self.a_type(&item.ident);
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn items(files: &[(&str, &str)]) -> Items {
        let modules: Vec<Module> = files
            .iter()
            .map(|(name, text)| Module {
                path: vec![(*name).to_owned()],
                source: Source::new(&format!("{name}.rs"), text).unwrap(),
            })
            .collect();
        Items::of(&modules)
    }

    #[test]
    fn a_function_is_as_long_as_what_is_between_its_braces() {
        let found = items(&[(
            "a",
            "fn one() {\n    // why\n\n    b();\n}\nfn none() {}\nimpl A {\n    fn two(\n        a: u8,\n    ) {\n        fn inner() {\n        }\n    }\n}\n",
        )]);
        let lengths: Vec<(&str, usize)> = found
            .functions
            .iter()
            .map(|one| (&*one.name, one.lines))
            .collect();

        assert_eq!(lengths, [("one", 3), ("none", 0), ("two", 2), ("inner", 0)]);
        assert_eq!(found.functions_above(2)[0].name, "one");
    }

    #[test]
    fn a_name_of_two_types_is_found_but_not_two_forms_of_one_type() {
        let found = items(&[
            (
                "a",
                "struct Seat; enum End {}\n#[cfg(unix)] struct B;\n#[cfg(not(unix))] struct B;",
            ),
            (
                "b",
                "type Seat = u8;\nfn c() { struct End; }\n#[cfg(test)] struct B;",
            ),
            ("d", "trait Other { type Seat; }"),
        ]);
        let twice = found.types_defined_twice();

        assert_eq!(twice.keys().collect::<Vec<_>>(), [&"End", &"Seat"]);
        assert_eq!(twice["Seat"].len(), 2);
    }
}
