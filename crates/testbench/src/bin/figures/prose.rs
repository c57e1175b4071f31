//! The sentences of a Markdown page, and their numbers of words.
//!
//! Headings, code blocks, tables, HTML and the texts of pictures are left out. The end of an item
//! of a list ends a sentence. Code inside a sentence is one word. A link is its text.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Stands for a piece of code.
const CODE: &str = "Code";

/// Full stops after these end no sentence.
const SHORT: [&str; 9] = [
    "e.g.", "i.e.", "vs.", "cf.", "etc.", "No.", "approx.", "al.", "incl.",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) line: usize,
    pub(crate) words: usize,
    pub(crate) text: String,
}

/// The sentences of a page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) file: String,
    pub(crate) sentences: Vec<Sentence>,
}

impl Page {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            sentences: sentences(text),
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        let words: usize = self.sentences.iter().map(|one| one.words).sum();
        words as f64 / self.sentences.len().max(1) as f64
    }

    pub(crate) fn longest(&self) -> usize {
        let words = self.sentences.iter().map(|one| one.words);
        words.max().unwrap_or(0)
    }

    pub(crate) fn above(&self, bound: usize) -> impl Iterator<Item = &Sentence> {
        self.sentences.iter().filter(move |one| one.words > bound)
    }
}

fn sentences(page: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut block = Block::default();
    let mut hidden = 0_usize;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(tag) if is_left_out(&tag) => {
                if !matches!(tag, Tag::Image { .. }) {
                    block.end(page, &mut found);
                }
                hidden += 1;
            }
            Event::End(tag) if is_end_of_left_out(tag) => hidden = hidden.saturating_sub(1),
            _ if hidden > 0 => {}
            Event::Text(text) => block.add(&text, range.start),
            Event::Code(text) => block.add_code(&text, range.start),
            Event::SoftBreak => block.add(" ", range.start),
            Event::HardBreak
            | Event::Rule
            | Event::Start(Tag::Paragraph | Tag::Item | Tag::List(_) | Tag::BlockQuote(_))
            | Event::End(
                TagEnd::Paragraph | TagEnd::Item | TagEnd::List(_) | TagEnd::BlockQuote(_),
            ) => block.end(page, &mut found),
            _ => {}
        }
    }
    block.end(page, &mut found);
    found
}

fn is_left_out(tag: &Tag<'_>) -> bool {
    is_end_of_left_out(tag.to_end())
}

fn is_end_of_left_out(tag: TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Heading(_)
            | TagEnd::CodeBlock
            | TagEnd::HtmlBlock
            | TagEnd::Table
            | TagEnd::Image
            | TagEnd::MetadataBlock(_)
    )
}

/// The text of a paragraph or an item so far.
#[derive(Debug, Default)]
struct Block {
    text: String,
    /// Where pieces of it begin, here and in the page.
    places: Vec<(usize, usize)>,
    /// Code that is read as one word: its place and its text.
    code: Vec<(usize, String)>,
}

impl Block {
    fn add(&mut self, text: &str, at: usize) {
        self.places.push((self.text.len(), at));
        self.text.push_str(text);
    }

    fn add_code(&mut self, text: &str, at: usize) {
        self.code.push((self.text.len(), text.to_owned()));
        self.add(CODE, at);
    }

    fn end(&mut self, page: &str, found: &mut Vec<Sentence>) {
        let block = std::mem::take(self);
        let mut start = 0;
        for end in ends(&block.text) {
            let words = words(&block.text[start..end]);
            if words > 0 {
                let leading =
                    block.text[start..end].len() - block.text[start..end].trim_start().len();
                found.push(Sentence {
                    line: block.line_of(page, start + leading),
                    words,
                    text: block.shown(start, end),
                });
            }
            start = end;
        }
    }

    fn line_of(&self, page: &str, at: usize) -> usize {
        let before = self.places.iter().rev().find(|(here, _)| *here <= at);
        let place = before.map_or(0, |(here, there)| there + (at - here));
        let before = page.get(..place).unwrap_or(page);
        before.matches('\n').count() + 1
    }

    /// The text as it stands in the page, with its code.
    fn shown(&self, start: usize, end: usize) -> String {
        let mut shown = String::new();
        let mut at = start;
        for (place, code) in &self.code {
            if (start..end).contains(place) {
                shown.push_str(&self.text[at..*place]);
                shown.push_str(&format!("`{code}`"));
                at = place + CODE.len();
            }
        }
        shown.push_str(&self.text[at..end]);
        shown.trim().to_owned()
    }
}

/// The ends of the sentences of a text.
fn ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    for (at, mark) in text.char_indices() {
        if !matches!(mark, '.' | '!' | '?') {
            continue;
        }
        let after = &text[at + 1..];
        let rest = after.trim_start_matches([')', '"', '\'', '\u{201d}', '\u{2019}', ']', '*']);
        let next = rest.trim_start();
        let is_end = rest.len() != next.len() && begins_a_sentence(next);
        let word = text[..=at].rsplit(char::is_whitespace).next();
        let word = word.unwrap_or("").trim_start_matches(['(', '"']);
        if is_end && !SHORT.contains(&word) {
            ends.push(at + 1 + after.len() - rest.len());
        }
    }
    ends.push(text.len());
    ends
}

fn begins_a_sentence(text: &str) -> bool {
    let mut letters = text.chars().skip_while(|letter| !letter.is_alphanumeric());
    letters.next().is_some_and(|letter| !letter.is_lowercase())
}

fn words(text: &str) -> usize {
    let parts = text.split_whitespace();
    parts
        .filter(|part| part.chars().any(char::is_alphanumeric))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<(usize, usize)> {
        let sentences = Page::new("a.md", page).sentences;
        sentences.iter().map(|one| (one.line, one.words)).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_ends_them() {
        let page = "One two. Three e.g. Four\nfive? (Six.) `seven` eight!\n\"Nine.\" Ten 3.6 and ... eleven";

        assert_eq!(
            found(page),
            [(1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (3, 4)]
        );
    }

    #[test]
    fn code_is_one_word_and_is_shown_as_it_stands() {
        let page = Page::new(
            "a.md",
            "Run `cargo run --release` [here](https://a.b/c-d). `B` is.",
        );

        assert_eq!(page.sentences[0].words, 3);
        assert_eq!(page.sentences[0].text, "Run `cargo run --release` here.");
        assert_eq!(page.sentences[1].text, "`B` is.");
    }

    #[test]
    fn headings_code_tables_html_and_pictures_are_left_out() {
        let page = "# Head line\n\nOne:\n\n```text\nfour five six\n```\n\n| a | b |\n|---|---|\n| c d | e |\n\n<!-- f\n\ng -->\n\n![h i](j.svg)\n\nTwo three <b>four</b>.\n";

        assert_eq!(found(page), [(3, 1), (19, 3)]);
    }

    #[test]
    fn each_item_of_a_list_is_for_itself() {
        let page = "Lead\n- one two\n  three\n- four. Five\n  1. six\n  2. seven\n\n> eight nine\n";

        assert_eq!(
            found(page),
            [(1, 1), (2, 3), (4, 1), (4, 1), (5, 1), (6, 1), (8, 2)]
        );
    }

    #[test]
    fn a_page_has_a_mean_and_a_longest_sentence() {
        let page = Page::new("a.md", "One two three. Four.");

        assert!((page.mean() - 2.0).abs() < f64::EPSILON);
        assert_eq!((page.longest(), page.above(2).count()), (3, 1));
    }
}
