//! One Rust file: its tokens without documentation and without what is built for tests only.

use std::collections::BTreeSet;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Meta, Token};

/// A file, read.
pub(crate) struct Source {
    /// From the root of the tree, with slashes.
    pub(crate) file: String,
    pub(crate) text: String,
    /// Without tests.
    pub(crate) tree: syn::File,
    /// Lines with a token that is neither documentation nor part of a test.
    pub(crate) code: BTreeSet<usize>,
    /// Lines with a token of a test.
    pub(crate) tests: BTreeSet<usize>,
}

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Result<Self, String> {
        let fail = |why: &dyn std::fmt::Display| format!("{file}: {why}");
        let tokens = TokenStream::from_str(text).map_err(|error| fail(&error))?;
        let mut pruner = Pruner::new(text);
        let kept = pruner.pruned(tokens);
        let tree = syn::parse2(kept.clone())
            .map_err(|error| fail(&format!("{}: {error}", error.span().start().line)))?;
        let mut code = BTreeSet::new();
        mark(kept, &mut code);
        pruner.tests.retain(|line| !code.contains(line));
        Ok(Self {
            file: file.to_owned(),
            text: text.to_owned(),
            tree,
            code,
            tests: pruner.tests,
        })
    }

    pub(crate) fn raw_lines(&self) -> usize {
        self.text.lines().count()
    }

    /// All lines but those of tests.
    pub(crate) fn lines_without_tests(&self) -> usize {
        self.raw_lines() - self.tests.len()
    }
}

/// The lines of a file that begin with a comment: their numbers and texts. Literals have none.
pub(crate) fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut literals = BTreeSet::new();
    if let Ok(tokens) = TokenStream::from_str(text) {
        inside_literals(tokens, &Pruner::new(text), &mut literals);
    }
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(number, line)| line.trim_start().starts_with("//") && !literals.contains(number))
        .collect()
}

fn inside_literals(tokens: TokenStream, pruner: &Pruner<'_>, found: &mut BTreeSet<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if !pruner.is_comment(group.span()) => {
                inside_literals(group.stream(), pruner, found);
            }
            TokenTree::Literal(literal) => {
                let span = literal.span();
                found.extend(span.start().line + 1..=span.end().line);
            }
            _ => {}
        }
    }
}

/// All lines that the tokens are on.
fn mark(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        if let TokenTree::Group(group) = token {
            lines.insert(group.span_open().start().line);
            mark(group.stream(), lines);
            lines.insert(group.span_close().end().line);
        } else {
            lines.extend(token.span().start().line..=token.span().end().line);
        }
    }
}

/// Takes documentation and tests out of tokens. The places of what is left stay what they were.
struct Pruner<'text> {
    lines: Vec<&'text str>,
    tests: BTreeSet<usize>,
}

impl<'text> Pruner<'text> {
    fn new(text: &'text str) -> Self {
        Self {
            lines: text.lines().collect(),
            tests: BTreeSet::new(),
        }
    }

    /// Documentation is an attribute to the parser; the text says that it is a comment.
    fn is_comment(&self, span: Span) -> bool {
        let start = span.start();
        let line = start.line.checked_sub(1).and_then(|at| self.lines.get(at));
        let rest = line.and_then(|line| {
            let (at, _) = line.char_indices().nth(start.column)?;
            line.get(at..)
        });
        rest.is_some_and(|rest| rest.starts_with("//") || rest.starts_with("/*"))
    }

    fn pruned(&mut self, tokens: TokenStream) -> TokenStream {
        let tokens: Vec<TokenTree> = tokens
            .into_iter()
            .filter(|token| !self.is_comment(token.span()))
            .collect();
        let mut kept = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let start = at;
            let mut is_test = false;
            while let Some((attribute, length)) = attribute_at(&tokens[at..]) {
                is_test |= is_for_tests(&attribute);
                at += length;
            }
            if is_test {
                at += item_length(&tokens[at..]);
                mark(tokens[start..at].iter().cloned().collect(), &mut self.tests);
                continue;
            }
            // Attributes stay as they are; so does the token after them, but for what is in it.
            kept.extend(tokens[start..at].iter().cloned());
            if let Some(token) = tokens.get(at) {
                kept.push(self.inside(token.clone()));
                at += 1;
            }
        }
        kept.into_iter().collect()
    }

    fn inside(&mut self, token: TokenTree) -> TokenTree {
        let TokenTree::Group(group) = token else {
            return token;
        };
        let mut new = Group::new(group.delimiter(), self.pruned(group.stream()));
        new.set_span(group.span());
        new.into()
    }
}

/// An outer attribute that the tokens begin with, and of how many tokens it is made.
fn attribute_at(tokens: &[TokenTree]) -> Option<(TokenStream, usize)> {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else {
        return None;
    };
    let is_attribute = hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket;
    is_attribute.then(|| (group.stream(), 2))
}

/// Of how many tokens the item, field or statement is made that the tokens begin with.
fn item_length(tokens: &[TokenTree]) -> usize {
    const WITH_A_BODY: [&str; 12] = [
        "fn", "impl", "mod", "struct", "enum", "trait", "union", "if", "match", "for", "while",
        "loop",
    ];
    const TO_A_SEMICOLON: [&str; 4] = ["use", "static", "let", "type"];

    let word = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    };
    let (mut has_body, mut ends_at_comma) = (false, true);
    for (at, token) in tokens.iter().enumerate() {
        match &*word(at) {
            "pub" | "async" | "unsafe" | "extern" | "crate" | "default" => continue,
            "const" if word(at + 1) == "fn" => continue,
            "const" => ends_at_comma = false,
            "macro_rules" => has_body = true,
            other if WITH_A_BODY.contains(&other) => has_body = true,
            other if TO_A_SEMICOLON.contains(&other) => ends_at_comma = false,
            // The scope of a `pub`, or the name of an ABI.
            "" if at > 0 && !is_braced(token) => continue,
            "" if is_braced(token) => return at + 1,
            _ => {}
        }
        break;
    }
    let mut angles = 0_i32;
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Punct(punct) = token else {
            if has_body && is_braced(token) {
                return at + 1;
            }
            continue;
        };
        match punct.as_char() {
            ';' => return at + 1,
            '<' => angles += 1,
            '>' => angles = (angles - 1).max(0),
            ',' if ends_at_comma && !has_body && angles == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is_braced(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Whether what has this attribute is in no program: `#[test]`, or a `#[cfg]` that only tests meet.
pub(crate) fn is_for_tests(attribute: &TokenStream) -> bool {
    match syn::parse2::<Meta>(attribute.clone()) {
        Ok(Meta::Path(path)) => path.is_ident("test"),
        Ok(Meta::List(list)) if list.path.is_ident("cfg") => !can_be_met(&list.tokens),
        _ => false,
    }
}

/// Whether some ordinary build meets it: one that is no test, documents nothing and fuzzes nothing.
fn can_be_met(predicate: &TokenStream) -> bool {
    let parts = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(predicate.clone());
    parts.map_or(true, |parts| parts.iter().all(|part| may_be(part, true)))
}

/// Whether the predicate may have this value. Nothing is known of features and platforms.
fn may_be(predicate: &Meta, value: bool) -> bool {
    let list = match predicate {
        Meta::List(list) => list,
        Meta::Path(path) => {
            let never = ["test", "doctest", "fuzzing"];
            return !value || !never.iter().any(|word| path.is_ident(word));
        }
        Meta::NameValue(_) => return true,
    };
    let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
    let Ok(parts) = parser.parse2(list.tokens.clone()) else {
        return true;
    };
    let mut each = parts.iter();
    if list.path.is_ident("not") {
        each.any(|part| may_be(part, !value))
    } else if list.path.is_ident("all") == value {
        each.all(|part| may_be(part, value))
    } else {
        each.any(|part| may_be(part, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<usize> {
        let source = Source::new("a.rs", text).unwrap();
        source.code.into_iter().collect()
    }

    #[test]
    fn blank_lines_comments_and_documentation_are_not_code() {
        let text =
            "//! Head.\n\n/// Doc.\nfn a() {\n    // why\n    let b = 1; // b\n\n    /* c */\n}\n";

        assert_eq!(code(text), [4, 6, 9]);
    }

    #[test]
    fn what_only_tests_build_is_not_code() {
        let text = "\
struct A {
    #[cfg(test)]
    seen: BTreeMap<u8, u8>,
    b: u8,
}
/// Doc.
#[cfg(all(test, feature = \"x\"))]
#[allow(dead_code)]
pub(crate) fn b() -> [u8; 2] {
    [1, 2]
}
#[cfg(test)]
use a::{b, c};
#[cfg(not(test))]
const C: u8 = 1;
fn d() {
    #[cfg(test)]
    if true {
        e();
    }
    #[cfg(test)]
    e(1, 2);
    e();
}
#[cfg(any(test, fuzzing))]
pub mod f;
#[cfg(any(test, feature = \"f\"))]
pub mod g;
#[test]
fn h() {}
";

        assert_eq!(code(text), [1, 4, 5, 14, 15, 16, 23, 24, 27, 28]);
    }

    #[test]
    fn a_comment_in_a_literal_is_none() {
        let text = "// one\nconst A: &str = \"\n// two\n\";\n    /// three\nfn b() {} // four\n";
        let found: Vec<usize> = comments(text).iter().map(|(line, _)| *line).collect();

        assert_eq!(found, [1, 5]);
    }
}
