//! Checks that the `{:?}` of every public type is short and shows no secret.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Values of public types, as they are shown.
#[derive(Default)]
pub struct Table(BTreeMap<&'static str, Vec<(String, String)>>);

impl Table {
    pub fn show<T: Debug>(&mut self, value: &T) {
        let path = type_name::<T>();
        let path = path.split_once('<').map_or(path, |(path, _)| path);
        let name = path.rsplit_once("::").map_or(path, |(_, name)| name);
        let shown = (format!("{value:?}"), format!("{value:#?}"));
        self.0.entry(name).or_default().push(shown);
    }

    /// Checks that every type exported by this crate root was shown, that each is short, and that
    /// none shows the secret.
    pub fn check(&self, secret: &str, root: &'static str, aliases: &[&str]) {
        let mut bad = Vec::new();
        for (name, shown) in &self.0 {
            for (plain, pretty) in shown {
                let is_brief = plain.len() < 300 && pretty.len() < 500;
                let lines = pretty.lines().count();
                if !is_brief || lines > 20 || plain.contains(secret) || pretty.contains(secret) {
                    bad.push(format!("{name}: {} bytes, {lines} lines", plain.len()));
                }
            }
        }
        assert!(bad.is_empty(), "{bad:#?}");
        let public = exported(root);
        assert!(public.len() > 8, "{public:?}");
        let shown = |name: &&&str| !self.0.contains_key(**name) && !aliases.contains(*name);
        let forgotten: Vec<&&str> = public.iter().filter(shown).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }
}

/// The types that the source of a root exports.
fn exported(source: &'static str) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for statement in source.split(';') {
        let Some((_, used)) = statement.split_once("\npub use ") else {
            continue;
        };
        let used = used.trim_end_matches('}');
        let all = used.rsplit_once("::").map_or(used, |(_, all)| all);
        let all = all.trim_start_matches('{');
        names.extend(all.split(',').map(str::trim));
    }
    for line in source.lines() {
        let declared = ["pub struct ", "pub enum "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        names.extend(declared.and_then(|rest| rest.split([' ', '(', '<', ';']).next()));
    }
    names.retain(|name| !name.is_empty() && name.starts_with(char::is_uppercase));
    names
}
