//! Which option stands where: an option of the connection, `--json` and `--verbose` stand at each
//! order in which they do something, before its word or behind it, and nowhere else.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory};

use super::Words;
use super::server::{Reading, Server, Source};

/// Orders that ask no server.
const ALONE: [&str; 4] = ["serve", "completions", "man", "help"];
/// Orders that print no data.
const WITHOUT_JSON: [&str; 6] = ["run", "elect", "init", "completions", "man", "help"];
/// Orders that only read, and `config`, which shows what they would do.
const READING: [&str; 7] = [
    "queue", "leader", "ls", "why", "journal", "doctor", "config",
];

/// Help, completions and pages tell all of it.
pub(crate) fn tool() -> Command {
    let tool = Words::command().mut_subcommands(|order| {
        let options = options_of(order.get_name());
        order.args(options).mut_args(with_its_variable)
    });
    // Short help has no room for what is not needed to begin.
    let before = all().into_iter().map(|option| {
        let help = long_help(&option);
        option.hide_short_help(true).long_help(help)
    });
    tool.args(before).mut_args(with_its_variable)
}

/// The options of the connection.
pub(crate) fn connection() -> Vec<Arg> {
    [
        arguments::<Source>(3),
        arguments::<Server>(4),
        arguments::<Reading>(5),
    ]
    .concat()
}

fn all() -> Vec<Arg> {
    let general = [arguments::<Json>(1), arguments::<Verbose>(2)].concat();
    [general, connection()].concat()
}

/// What an order has beside its own options.
fn options_of(order: &str) -> Vec<Arg> {
    let mut options = Vec::new();
    if !WITHOUT_JSON.contains(&order) {
        options.extend(arguments::<Json>(1));
    }
    if !ALONE.contains(&order) && order != "config" {
        options.extend(arguments::<Verbose>(2));
    }
    if !ALONE.contains(&order) {
        options.extend(arguments::<Source>(3));
        options.extend(arguments::<Server>(4));
    }
    if READING.contains(&order) {
        options.extend(arguments::<Reading>(5));
    }
    options
}

#[derive(Debug, Args)]
struct Json {
    /// Prints data as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Verbose {
    /// Logs to stderr; given twice or three times it logs more (RUST_LOG wins)
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

/// Options in the order of their definition, behind those of lower ranks in the same list.
fn arguments<T: Args>(rank: usize) -> Vec<Arg> {
    let command = T::augment_args(Command::new("lockkeeper"));
    let options = command.get_arguments().cloned().enumerate();
    let placed = options.map(|(place, option)| option.display_order(100 * rank + place));
    placed.collect()
}

/// Names the variable in the long help, because the short one has a line for each option.
fn with_its_variable(option: Arg) -> Arg {
    let Some(variable) = option.get_env() else {
        return option;
    };
    let (help, variable) = (long_help(&option), variable.to_string_lossy());
    let help = format!("{help}\n\n[env: {variable}]");
    option.hide_env(true).long_help(help)
}

fn long_help(option: &Arg) -> String {
    let help = option.get_long_help().or_else(|| option.get_help());
    help.map(ToString::to_string).unwrap_or_default()
}

/// Reads words. What stands before the word of the order is put behind it first, so that each
/// option is read in one place.
pub(super) fn read(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let words = behind_the_order(words);
    // A wrong variable is no concern of an order that does not have its option.
    let mut tool = tool().mut_args(without_variable);
    let read = tool.try_get_matches_from_mut(&words);
    read.map_err(|error| with_whole_usage(error, &mut tool, words.get(1)))
}

/// Puts words right behind that of the order.
pub(super) fn with(words: &[OsString], more: Vec<OsString>) -> Vec<OsString> {
    let mut words = behind_the_order(words);
    let at = words.len().min(2);
    words.splice(at..at, more);
    words
}

fn behind_the_order(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    let before = all().into_iter().map(without_variable);
    let before = Command::new("lockkeeper").args(before);
    let before = before
        .allow_external_subcommands(true)
        .disable_help_subcommand(true);
    // Whoever asks for help or mistypes is told by the parser of all words.
    let Ok(matches) = before.try_get_matches_from(&words) else {
        return words;
    };
    if let Some((_, rest)) = matches.subcommand() {
        let rest = rest.get_many::<OsString>("").map_or(0, |rest| rest.len());
        let end = words.len().saturating_sub(rest);
        if let Some(until_order) = words.get_mut(1..end) {
            until_order.rotate_right(1);
        }
    }
    words
}

fn without_variable(option: Arg) -> Arg {
    option.env(None::<&'static str>)
}

/// Usage as it always is. The parser would show each option that a variable gives, as if it were
/// needed.
fn with_whole_usage(
    mut error: clap::Error,
    tool: &mut Command,
    order: Option<&OsString>,
) -> clap::Error {
    if error.get(ContextKind::Usage).is_some() {
        let order = order.and_then(|word| word.to_str());
        let usage = match order.and_then(|word| tool.find_subcommand_mut(word)) {
            Some(order) => order.render_usage(),
            None => tool.render_usage(),
        };
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}
