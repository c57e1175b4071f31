//! Completions and manual pages: they know every word that `--help` knows, and need no server.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

use super::one_line;
use crate::tool::{Finished, finished, lockkeeper};
use testbench::{World, case};

/// Where nobody listens.
const NOBODY: &str = "127.0.0.1:1";

/// The tool with that for a server.
async fn alone(world: &World, words: &[&str]) -> Finished {
    let mut command = lockkeeper(world);
    finished(command.env("LOCKKEEPER_ZK", NOBODY).args(words)).await
}

/// What it prints when all is well.
async fn said(world: &World, words: &[&str]) -> String {
    let ended = alone(world, words).await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{words:?}"
    );
    ended.stdout
}

/// The help of the tool and of each of its subcommands, with the words that ask for it.
async fn helps(world: &World) -> Vec<(Option<String>, String)> {
    let whole = said(world, &["--help"]).await;
    let list = whole.lines().skip_while(|line| *line != "Commands:");
    let names = list.skip(1).take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut helps = vec![(None, whole.clone())];
    for name in names.filter(|name| !name.is_empty()) {
        let help = said(world, &[name, "--help"]).await;
        helps.push((Some(name.to_owned()), help));
    }
    assert!(helps.len() > 10, "the subcommands are found: {whole}");
    helps
}

/// The long options that a help explains.
fn options(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter(|line| line.starts_with("  "));
    let lines = lines.filter(|line| line.trim_start().starts_with('-'));
    let words =
        lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
    let words: BTreeSet<String> = words
        .map(|word| word.trim_end_matches('.').to_owned())
        .collect();
    assert!(words.contains("--help"), "the options are found: {help}");
    words
}

/// What bash offers when these words were typed, the last of them in part.
async fn offered(script: &Path, typed: &[&str]) -> BTreeSet<String> {
    let shell = r#"source "$1" && shift && COMP_WORDS=("$@") && COMP_CWORD=$(($# - 1)) &&
        _lockkeeper "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" &&
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["-c", shell, "bash"]).arg(script).args(typed);
    let ended = finished(&mut bash).await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{typed:?}"
    );
    ended.stdout.lines().map(str::to_owned).collect()
}

#[case]
async fn bash_offers_every_word_of_help_and_no_other(world: World) {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("lockkeeper");
    fs::write(&script, said(&world, &["completions", "bash"]).await).unwrap();

    for (name, help) in helps(&world).await {
        let typed: Vec<&str> = std::iter::once("lockkeeper")
            .chain(name.as_deref())
            .collect();
        let long = [&typed[..], &["--"]].concat();

        assert_eq!(offered(&script, &long).await, options(&help), "{name:?}");
        if let Some(name) = &name {
            assert_eq!(
                offered(&script, &typed).await,
                BTreeSet::from([name.clone()])
            );
        }
    }
    assert_eq!(
        offered(&script, &["lockkeeper", "ru"]).await,
        BTreeSet::from(["run".to_owned()])
    );
}

#[case]
async fn every_shell_is_told_every_word_of_help(world: World) {
    let helps = helps(&world).await;
    for (shell, sign) in [
        ("bash", "complete -F _lockkeeper"),
        ("zsh", "#compdef lockkeeper"),
        ("fish", "complete -c lockkeeper"),
        ("elvish", "edit:completion:arg-completer[lockkeeper]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = said(&world, &["completions", shell]).await;
        assert!(script.contains(sign), "that is nothing for {shell}");
        // Fish is told of an option as `-l wait`.
        let script = script.replace(" -l ", " --");
        let words: BTreeSet<&str> = script
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .collect();

        for (name, help) in &helps {
            let missing: Vec<String> = options(help)
                .into_iter()
                .chain(name.clone())
                .filter(|word| !words.contains(word.as_str()))
                .collect();
            assert!(missing.is_empty(), "{shell} is not told of {missing:?}");
        }
    }
}

/// The file of each help's page, and its text.
async fn pages(world: &World) -> Vec<(String, String, String)> {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("share/man1");
    said(world, &["man", "--out", out.to_str().unwrap()]).await;
    let mut pages = Vec::new();
    for (name, help) in helps(world).await {
        let file = name.map_or_else(
            || "lockkeeper.1".to_owned(),
            |name| format!("lockkeeper-{name}.1"),
        );
        let page = fs::read_to_string(out.join(&file)).unwrap();
        pages.push((file, help, page));
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), pages.len());
    pages
}

/// A line of a page as it is read: without fonts and escapes.
fn plain(line: &str) -> String {
    let line = ["\\fB", "\\fI", "\\fR"]
        .iter()
        .fold(line.to_owned(), |line, font| line.replace(font, ""));
    line.replace("\\-", "-")
        .replace("\\*(Aq", "'")
        .replace("\\&", "")
}

#[case]
async fn no_word_of_help_is_missing_in_its_page(world: World) {
    // A page has other words for what is around the notes and the options.
    let frame =
        "Usage Commands Arguments Options Server TLS Access Time Examples Exit codes env possible";
    let frame: BTreeSet<&str> = frame.split(' ').collect();
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.map(str::to_owned).collect()
    };

    for (file, help, page) in pages(&world).await {
        let lines: Vec<String> = page.lines().map(plain).collect();
        let read = words(&lines.join("\n"));
        let missing: Vec<String> = words(&help.replace(NOBODY, ""))
            .into_iter()
            .filter(|word| !read.contains(word) && !frame.contains(word.as_str()))
            .collect();
        let entries: Vec<&str> = lines
            .iter()
            .filter(|line| line.starts_with('-'))
            .flat_map(|line| line.split([' ', ',', '=']))
            .collect();

        assert!(missing.is_empty(), "{file} lacks {missing:?}");
        for option in options(&help) {
            assert!(entries.contains(&option.as_str()), "{file} lacks {option}");
        }
    }
}

/// The sections of a page, with the lines in each that are text.
fn sections(page: &str) -> Vec<(&str, Vec<String>)> {
    let mut sections: Vec<(&str, Vec<String>)> = Vec::new();
    for line in page.lines() {
        match (line.strip_prefix(".SH "), sections.last_mut()) {
            (Some(title), _) => sections.push((title.trim_matches('"'), Vec::new())),
            (None, Some((_, lines))) if !line.starts_with(['.', '\'']) => lines.push(plain(line)),
            _ => {}
        }
    }
    sections
}

#[case]
async fn a_page_has_its_sections_and_none_is_empty(world: World) {
    for (file, help, page) in pages(&world).await {
        let sections = sections(&page);
        let of = |title: &str| {
            let section = sections.iter().find(|(found, _)| *found == title);
            &section.unwrap_or_else(|| panic!("{file} has no {title}")).1
        };

        for (title, lines) in &sections {
            let written = lines.iter().any(|line| !line.trim().is_empty());
            assert!(written, "{title} of {file} is empty");
        }
        let name = file.trim_end_matches(".1");
        let title = format!(
            ".TH {} 1 \"\" \"lockkeeper {}\" Lockkeeper",
            name.to_uppercase(),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(page.lines().next(), Some(&*title));
        assert!(of("NAME")[0].starts_with(&format!("{name} - ")), "{file}");
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "));
        assert_eq!(of("SYNOPSIS")[0], usage.unwrap(), "{file}");
        of("DESCRIPTION");
        of("OPTIONS");
        let variables = help
            .split("[env: ")
            .skip(1)
            .filter_map(|rest| rest.split(['=', ']']).next());
        for variable in variables.chain(["RUST_LOG"]) {
            assert!(
                of("ENVIRONMENT").iter().any(|line| line == variable),
                "{file} lacks {variable}"
            );
        }
        if help.contains("Exit codes:") {
            assert!(of("EXIT STATUS").iter().any(|line| line == "64"), "{file}");
        }
        if help.contains("Examples:") {
            assert!(of("EXAMPLES")[0].starts_with("lockkeeper "), "{file}");
        }
    }
}

#[case]
async fn man_prints_the_page_that_it_writes(world: World) {
    let printed = said(&world, &["man"]).await;
    let pages = pages(&world).await;
    let (file, _, page) = &pages[0];

    assert_eq!(file, "lockkeeper.1");
    assert!(printed.trim_end() == page.trim_end(), "{printed}");
    for (file, _, page) in &pages[1..] {
        let entry = format!("{}(1)", file.trim_end_matches(".1"));
        assert!(
            sections(&printed)
                .iter()
                .any(|(_, lines)| lines.contains(&entry)),
            "{entry}"
        );
        assert!(
            sections(page).iter().any(|(title, _)| *title == "SEE ALSO"),
            "{file}"
        );
    }
}

#[case]
async fn a_page_that_cannot_be_written_ends_with_74(world: World) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    fs::create_dir(folder.path().join("lockkeeper.1")).unwrap();

    for out in [file.join("below"), folder.path().to_owned()] {
        let ended = alone(&world, &["man", "--out", out.to_str().unwrap()]).await;

        assert_eq!(ended.code, Some(74), "{ended:?}");
        assert!(one_line(&ended).contains("cannot write"), "{ended:?}");
    }
}
