//! Many bugs in one build: each function that a bug changes has both bodies, and the environment
//! says at run time which one it is.
//!
//! Only what stands in the body of a function can be switched so. A bug that changes a signature, a
//! constant or a type is left to a build of its own, and so is one that does not compile beside the
//! others.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

/// The variable that names the bug of a run.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_MUTANT";

/// What each switched crate has at its end.
pub(crate) const QUESTION: &str = r#"
#[allow(warnings, clippy::all)]
pub(crate) fn has_bug(name: &str) -> bool {
    static BUG: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    BUG.get_or_init(|| std::env::var("LOCKKEEPER_MUTANT").unwrap_or_default()) == name
}
"#;

/// What a bug replaces in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    place: Range<usize>,
    text: String,
}

/// A file in which bugs are switched.
pub(crate) struct Switched {
    pub(crate) text: String,
    stretches: Vec<Stretch>,
}

/// Lines that are there for some bugs.
struct Stretch {
    lines: Range<usize>,
    bugs: Vec<String>,
}

/// Functions that can be switched, or not, as they stand in a file.
#[derive(Default)]
struct Bodies(Vec<Body>);

struct Body {
    place: Range<usize>,
    is_const: bool,
}

impl Edit {
    /// None unless the text is there once. What both texts begin and end with stays as it is.
    pub(crate) fn new(whole: &str, find: &str, replace: &str) -> Option<Self> {
        let mut found = whole.match_indices(find);
        let (Some((at, _)), None) = (found.next(), found.next()) else {
            return None;
        };
        let begin = common(find.chars(), replace.chars());
        let (old, new) = (&find[begin..], &replace[begin..]);
        let end = common(old.chars().rev(), new.chars().rev());
        Some(Self {
            place: at + begin..at + find.len() - end,
            text: new[..new.len() - end].to_owned(),
        })
    }
}

/// How many bytes two texts have in common at their beginning.
fn common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    let both = one.zip(other).take_while(|(one, other)| one == other);
    both.map(|(letter, _)| letter.len_utf8()).sum()
}

impl Switched {
    /// Those of the bugs that cannot be switched in this file are not in what comes back, and
    /// their names are.
    pub(crate) fn new(whole: &str, bugs: &BTreeMap<String, Vec<Edit>>) -> (Self, Vec<String>) {
        let bodies = Bodies::of(whole);
        let (mut groups, mut left) = (BTreeMap::new(), Vec::new());
        for (bug, edits) in bugs {
            let places: Option<Vec<_>> = edits
                .iter()
                .map(|edit| bodies.around(&edit.place))
                .collect();
            let Some(places) = places else {
                left.push(bug.clone());
                continue;
            };
            for (place, edit) in places.into_iter().zip(edits) {
                let group: &mut BTreeMap<&str, Vec<&Edit>> =
                    groups.entry((place.start, place.end)).or_default();
                group.entry(bug).or_default().push(edit);
            }
        }
        let mut made = Self {
            text: String::with_capacity(whole.len() * 2),
            stretches: Vec::new(),
        };
        let mut done = 0;
        for ((start, end), group) in outermost(groups) {
            made.text.push_str(&whole[done..start]);
            made.body(whole, start..end, &group);
            done = end;
        }
        made.text.push_str(&whole[done..]);
        (made, left)
    }

    /// Writes one body: the choice between what it is, and what it is with each bug.
    fn body(&mut self, whole: &str, place: Range<usize>, bugs: &BTreeMap<&str, Vec<&Edit>>) {
        let first = self.line();
        self.text.push('{');
        for (bug, edits) in bugs {
            let begin = self.line();
            let question = format!(" if crate::has_bug({bug:?}) ");
            self.text.push_str(&question);
            let mut edits = edits.clone();
            edits.sort_by_key(|edit| edit.place.start);
            let mut done = place.start;
            for edit in edits {
                self.text.push_str(&whole[done..edit.place.start]);
                self.text.push_str(&edit.text);
                done = edit.place.end;
            }
            self.text.push_str(&whole[done..place.end]);
            self.text.push_str("\nelse");
            self.stretch(begin, [bug]);
            self.text.push('\n');
        }
        self.text.push_str(&whole[place]);
        self.text.push('}');
        self.stretch(first, bugs.keys());
    }

    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }

    fn stretch<'a>(&mut self, begin: usize, bugs: impl IntoIterator<Item = &'a &'a str>) {
        let lines = begin..self.line() + 1;
        let bugs = bugs.into_iter().map(|bug| (*bug).to_owned()).collect();
        self.stretches.push(Stretch { lines, bugs });
    }

    /// The bugs that an error in a line is of: the one in whose body it is, or else all those of
    /// the function.
    pub(crate) fn bugs_at(&self, line: usize) -> &[String] {
        let around = self.stretches.iter();
        let around = around.filter(|stretch| stretch.lines.contains(&line));
        around
            .min_by_key(|stretch| stretch.lines.len())
            .map_or(&[], |stretch| &stretch.bugs)
    }
}

type Groups<'a> = BTreeMap<(usize, usize), BTreeMap<&'a str, Vec<&'a Edit>>>;

/// What is switched in a function within a switched function is switched in the outer one.
fn outermost(groups: Groups<'_>) -> Groups<'_> {
    let mut outer: Groups<'_> = BTreeMap::new();
    for ((start, end), group) in groups {
        let last = outer.last_entry().filter(|last| last.key().1 >= end);
        match last {
            Some(mut around) => {
                for (bug, edits) in group {
                    around.get_mut().entry(bug).or_default().extend(edits);
                }
            }
            None => {
                outer.insert((start, end), group);
            }
        }
    }
    outer
}

impl Bodies {
    fn of(whole: &str) -> Self {
        let mut found = Self::default();
        if let Ok(file) = syn::parse_file(whole) {
            found.visit_file(&file);
        }
        found
    }

    /// The body of the innermost function around it.
    fn around(&self, place: &Range<usize>) -> Option<Range<usize>> {
        let around = self.0.iter();
        let around =
            around.filter(|body| body.place.start < place.start && place.end < body.place.end);
        let innermost = around.min_by_key(|body| body.place.len())?;
        (!innermost.is_const).then(|| innermost.place.clone())
    }

    fn push(&mut self, signature: &Signature, block: &Block) {
        let braces = block.brace_token.span;
        let start = |span: Span| span.byte_range().start;
        self.0.push(Body {
            place: start(braces.open())..braces.close().byte_range().end,
            is_const: signature.constness.is_some(),
        });
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.push(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.push(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.push(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(whole: &str, bugs: &[(&str, &str, &str)]) -> (Switched, Vec<String>) {
        let mut map: BTreeMap<String, Vec<Edit>> = BTreeMap::new();
        for (bug, find, replace) in bugs {
            let edit = Edit::new(whole, find, replace).unwrap();
            map.entry((*bug).to_owned()).or_default().push(edit);
        }
        Switched::new(whole, &map)
    }

    #[test]
    fn a_body_is_there_once_for_each_bug_and_once_without() {
        let whole = "async fn f() -> u8 { 1 + 2 }\nfn g() {}\n";
        let (made, left) = switched(whole, &[("one", "1", "9"), ("two", "2", "8")]);

        assert!(left.is_empty());
        assert_eq!(
            made.text,
            "async fn f() -> u8 { if crate::has_bug(\"one\") { 9 + 2 }\nelse\n \
             if crate::has_bug(\"two\") { 1 + 8 }\nelse\n{ 1 + 2 }}\nfn g() {}\n"
        );
        assert!(syn::parse_file(&made.text).is_ok());
    }

    #[test]
    fn one_bug_in_two_functions_has_one_name() {
        let whole = "impl T for S {\n fn f() { 1; }\n fn g() { 2; }\n}";
        let (made, left) = switched(whole, &[("both", "1;", "3;"), ("both", "2;", "4;")]);

        assert!(left.is_empty());
        assert_eq!(made.text.matches("has_bug(\"both\")").count(), 2);
        assert!(syn::parse_file(&made.text).is_ok());
    }

    #[test]
    fn a_function_in_a_switched_function_is_switched_with_it() {
        let whole = "fn f() { fn g() { 1; } 2; }";
        let (made, left) = switched(whole, &[("inner", "1;", "3;"), ("outer", "2;", "4;")]);

        assert!(left.is_empty());
        assert_eq!(made.text.matches("fn g()").count(), 3);
        assert!(syn::parse_file(&made.text).is_ok());
    }

    #[test]
    fn what_is_not_in_a_body_is_left() {
        let whole = "const A: u32 = 1;\nconst fn f() { 2; }\nfn g(a: u8) { 3; }\n";
        let bugs = [
            ("constant", "= 1", "= 4"),
            ("const-fn", "2;", "5;"),
            ("signature", "u8", "u16"),
        ];
        let (made, left) = switched(whole, &bugs);

        assert_eq!(left, ["const-fn", "constant", "signature"]);
        assert_eq!(made.text, whole);
    }

    #[test]
    fn what_only_shows_the_place_may_stand_before_the_body() {
        let (_, left) = switched("fn g() { 3; }", &[("first", "fn g() {", "fn g() { 2;")]);

        assert!(left.is_empty());
    }

    #[test]
    fn an_error_is_of_the_bug_in_whose_lines_it_is() {
        let whole = "fn f() {\n1;\n2;\n}\nfn g() {}\n";
        let (made, _) = switched(whole, &[("one", "1;", "9;"), ("two", "2;", "8;")]);
        let line_of = |text: &str| {
            let at = made.text.find(text).unwrap();
            made.text[..at].matches('\n').count() + 1
        };

        assert_eq!(made.bugs_at(line_of("9;")), ["one"]);
        assert_eq!(made.bugs_at(line_of("8;")), ["two"]);
        assert_eq!(made.bugs_at(line_of("2;\n}}")), ["one", "two"]);
        assert!(made.bugs_at(line_of("fn g")).is_empty());
    }
}
