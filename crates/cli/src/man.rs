//! `man`: the manual pages. It asks no server.
//!
//! Invariant: a page says what `--help` says and nothing else, because it is made of the same
//! words: of the options, and of the notes below them, whose paragraphs become sections. So it
//! depends on how notes are written: what is indented is an entry, a term and two spaces or more
//! and its meaning; what is indented by eight or more goes on with the entry above it.

use std::fs;
use std::io;

use clap::Command;
use clap_mangen::Man as Generator;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{self, Man};
use crate::failure::Failure;
use crate::report;

/// Paragraphs of notes that are sections of their own, by how they begin, in the order of the page.
const SECTIONS: [(&str, &str); 2] = [("Exit codes:", "EXIT STATUS"), ("Examples:", "EXAMPLES")];

pub(crate) fn run(order: &Man) -> Result<u8, Failure> {
    let mut tool = args::tool();
    tool.build();
    let Some(folder) = &order.out else {
        let page = page(&tool, &tool).map_err(Failure::Output)?;
        report::print(page.trim_end())?;
        return Ok(0);
    };
    fs::create_dir_all(folder).map_err(|source| Failure::Page {
        file: folder.clone(),
        source,
    })?;
    for command in std::iter::once(&tool).chain(tool.get_subcommands()) {
        let file = folder.join(format!("{}.1", name_of(command)));
        page(&tool, command)
            .and_then(|page| fs::write(&file, page))
            .map_err(|source| Failure::Page { file, source })?;
    }
    Ok(0)
}

/// What its page is called: `lockkeeper-run` for `lockkeeper run`.
fn name_of(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// The page of the tool, or of one of its subcommands.
fn page(tool: &Command, command: &Command) -> io::Result<String> {
    let generator = Generator::new(command.clone());
    let (name, version) = (name_of(command), tool.get_version().unwrap_or_default());
    let name = name.to_uppercase();
    // No date, so that a page is the same wherever it is made. The generator would leave out what
    // is empty.
    let mut page = format!(".TH {name} 1 \"\" \"lockkeeper {version}\" Lockkeeper\n").into_bytes();
    generator.render_name_section(&mut page)?;
    beginning(command).to_writer(&mut page)?;
    generator.render_options_section(&mut page)?;
    if command.has_subcommands() {
        generator.render_subcommands_section(&mut page)?;
    }
    end(tool, command).to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// How it is called and what it does.
fn beginning(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    for (form, line) in usage.trim_start_matches("Usage: ").lines().enumerate() {
        if form > 0 {
            roff.control("br", []);
        }
        roff.text([bold(line.trim_start())]);
    }
    roff.control("SH", ["DESCRIPTION"]);
    if let Some(about) = command.get_about() {
        roff.text([roman(format!("{about}."))]);
    }
    let notes = notes(command);
    let is_section = |text: &str| SECTIONS.iter().any(|(word, _)| text.starts_with(word));
    for text in notes.split("\n\n").filter(|text| !is_section(text)) {
        roff.control("PP", []);
        paragraph(&mut roff, text);
    }
    roff
}

/// What stands below the options.
fn end(tool: &Command, command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    for argument in command.get_arguments() {
        if let (Some(variable), Some(long)) = (argument.get_env(), argument.get_long()) {
            let meaning = format!("Stands for --{long}, which wins.");
            entry(&mut roff, &variable.to_string_lossy(), &meaning);
        }
    }
    let meaning =
        "Stands for --verbose, and wins: the log on stderr, for example `lockkeeper=debug`.";
    entry(&mut roff, "RUST_LOG", meaning);
    let notes = notes(command);
    for (word, title) in SECTIONS {
        let mut paragraphs = notes.split("\n\n");
        if let Some(text) = paragraphs.find_map(|text| text.strip_prefix(word)) {
            roff.control("SH", [title]);
            paragraph(&mut roff, text.strip_prefix(['\n', ' ']).unwrap_or(text));
        }
    }
    if name_of(tool) != name_of(command) {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold(name_of(tool)), roman("(1)")]);
    }
    roff
}

fn notes(command: &Command) -> String {
    command
        .get_after_long_help()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Lines that flow, and entries.
fn paragraph(roff: &mut Roff, text: &str) {
    let mut after_entry = false;
    for line in text.lines() {
        let words = line.trim_start();
        match (line.len() - words.len(), words.split_once("  ")) {
            (1..8, Some((term, meaning))) => entry(roff, term, meaning.trim_start()),
            (1..8, None) => {
                roff.control("PP", []);
                roff.text([bold(words)]);
            }
            (0, _) if after_entry => {
                roff.control("PP", []);
                roff.text([roman(words)]);
            }
            _ => {
                roff.text([roman(words)]);
            }
        }
        after_entry = line.starts_with(' ');
    }
}

fn entry(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(meaning)]);
}
