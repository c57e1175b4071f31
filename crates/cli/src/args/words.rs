//! The two forms of `run` and `elect`: with one name the command begins behind it; several names,
//! or options behind a name, end with `--`. (pure)
//!
//! Invariant: no word of the command is read as an option, and a line with a `--` stays as it is.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;

use clap::error::ErrorKind;
use clap::{Arg, Command};

pub(super) const RUN: &str = "\
lockkeeper run [OPTIONS] NAME CMD [ARGS]...
       lockkeeper run [OPTIONS] NAME... -- CMD [ARGS]...";
pub(super) const ELECT: &str = "\
lockkeeper elect [OPTIONS] NAME CMD [ARGS]...
       lockkeeper elect [OPTIONS] NAME -- CMD [ARGS]...";

const SEPARATOR: &str = "--";

/// Puts the `--` in where it was left out, and refuses a line without a name or without a command.
/// What else is wrong with it, `clap` says.
pub(super) fn separated(
    tool: &mut Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, clap::Error> {
    let Next::Word(at) = next(tool, &words, 1) else {
        return Ok(words);
    };
    let order = words[at].to_string_lossy().into_owned();
    let has_command = matches!(&*order, "run" | "elect");
    let Some(order) = tool.find_subcommand_mut(&order).filter(|_| has_command) else {
        return Ok(words);
    };
    match command_in(order, &words, at + 1) {
        Ok(Some(begin)) => words.insert(begin, SEPARATOR.into()),
        Ok(None) => {}
        Err(why) => {
            let refused = order.error(ErrorKind::MissingRequiredArgument, why);
            return Err(taken_for_a_value(tool, words).unwrap_or(refused));
        }
    }
    Ok(words)
}

/// What is wrong with a value of the line: `run --wait NAME CMD` seems to have no command, because
/// the name is taken for a time.
fn taken_for_a_value(tool: &mut Command, words: Vec<OsString>) -> Option<clap::Error> {
    let whole = words
        .into_iter()
        .chain([SEPARATOR, "true"].map(OsString::from));
    let error = tool.try_get_matches_from_mut(whole).err()?;
    let kinds = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
    kinds.contains(&error.kind()).then_some(error)
}

/// Where the command begins, if no `--` says it.
fn command_in(order: &Command, words: &[OsString], from: usize) -> Result<Option<usize>, String> {
    let form = |name: &str| format!("lockkeeper {} {name} ./work.sh", order.get_name());
    let at = match next(order, words, from) {
        Next::Word(at) => at,
        Next::End => {
            return Err(format!(
                "a name and a command are missing: {}",
                form("NAME")
            ));
        }
        Next::Separator => return Err(format!("a name is missing: {}", form("NAME"))),
        Next::Other(_) => return Ok(None),
    };
    let name = words[at].to_string_lossy();
    let missing = || format!("no command was given to run under {name}: {}", form(&name));
    let rest = &words[at + 1..];
    if let Some(separator) = rest.iter().position(|word| word == SEPARATOR) {
        let has_command = separator + 1 < rest.len();
        return match has_command {
            true => check_before(order, words, at + 1).map(|()| None),
            false => Err(missing()),
        };
    }
    match rest.first() {
        None => Err(missing()),
        Some(word) if !is_option(word) => Ok(Some(at + 1)),
        Some(word) if asks_for_help(word) => Ok(None),
        Some(word) => match next(order, words, at + 1) {
            Next::End => Err(missing()),
            _ => Err(behind(&word.to_string_lossy(), order.get_name())),
        },
    }
}

/// Refuses what looks like a command between a name and a `--`: that one may be the command's own.
fn check_before(order: &Command, words: &[OsString], from: usize) -> Result<(), String> {
    let (mut at, order_name) = (from, order.get_name());
    let one_before = "a command with a `--` of its own needs one before it";
    loop {
        match next(order, words, at) {
            Next::Word(_) if order_name == "elect" => {
                return Err(format!("`elect` has one name: {one_before}"));
            }
            Next::Word(name) => at = name + 1,
            Next::Other(option) if !asks_for_help(&words[option]) => {
                let option = words[option].to_string_lossy();
                let option = option.split('=').next().unwrap_or_default();
                return Err(format!(
                    "{option} is no option of `{order_name}`: {one_before}"
                ));
            }
            Next::Other(_) | Next::Separator | Next::End => return Ok(()),
        }
    }
}

/// Says where options stand, without their values: they may be secrets.
fn behind(option: &str, order: &str) -> String {
    let option = option.split('=').next().unwrap_or_default();
    format!(
        "{option} stands behind the name: write options before it, as in `lockkeeper {order} {option} .. NAME CMD`, or `--` before the command"
    )
}

/// What comes next that is no option.
enum Next {
    Word(usize),
    Separator,
    End,
    /// An option that is not known, or one that asks for help.
    Other(usize),
}

fn next(command: &Command, words: &[OsString], from: usize) -> Next {
    let mut at = from;
    while let Some(word) = words.get(at) {
        if word == SEPARATOR {
            return Next::Separator;
        }
        if !is_option(word) {
            return Next::Word(at);
        }
        match word.to_str().and_then(|word| length(command, word)) {
            Some(length) => at += length,
            None => return Next::Other(at),
        }
    }
    Next::End
}

fn asks_for_help(word: &OsStr) -> bool {
    word == "-h" || word == "--help"
}

fn is_option(word: &OsStr) -> bool {
    // A `-` alone is a word.
    word.len() > 1 && word.as_encoded_bytes().starts_with(b"-")
}

/// The number of words of an option and its value; `None` if `clap` knows better.
fn length(command: &Command, word: &str) -> Option<usize> {
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    let find = |is_it: &dyn Fn(&Arg) -> bool| command.get_arguments().find(|arg| is_it(arg));
    let is_help = |arg: &Arg| matches!(arg.get_id().as_str(), "help" | "version");
    if let Some(long) = word.strip_prefix("--") {
        let (long, value) = match long.split_once('=') {
            Some((long, value)) => (long, Some(value)),
            None => (long, None),
        };
        let arg = find(&|arg| arg.get_long() == Some(long)).filter(|arg| !is_help(arg))?;
        return Some(1 + usize::from(takes_value(arg) && value.is_none()));
    }
    let shorts: Vec<char> = word.chars().skip(1).collect();
    let read = shorts.iter().enumerate().try_for_each(|(at, short)| {
        let arg = find(&|arg| arg.get_short() == Some(*short)).filter(|arg| !is_help(arg));
        match arg {
            Some(arg) if takes_value(arg) && at + 1 == shorts.len() => ControlFlow::Break(Some(2)),
            Some(arg) if takes_value(arg) => ControlFlow::Break(Some(1)),
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(None),
        }
    });
    match read {
        ControlFlow::Break(length) => length,
        ControlFlow::Continue(()) => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, Order, Work};
    use super::*;

    /// The names, and the command.
    fn read(line: &str) -> Result<(String, String), String> {
        let words = format!("lockkeeper {line}");
        let arguments =
            Arguments::read(words.split(' '), &[]).map_err(|error| error.to_string())?;
        let command = |work: Work| work.command.join(OsStr::new(" "));
        let (names, command) = match arguments.order {
            Order::Run(run) => (run.names.join(" "), command(run.work)),
            Order::Elect(elect) => (elect.name, command(elect.work)),
            order => panic!("{order:?}"),
        };
        Ok((names, command.into_string().unwrap()))
    }

    #[test]
    fn the_command_begins_behind_the_one_name_or_behind_the_dashes() {
        for (line, names, command) in [
            ("run a ./x", "a", "./x"),
            (
                "run nightly ./x --all --wait 5s",
                "nightly",
                "./x --all --wait 5s",
            ),
            ("run nightly ./x -h", "nightly", "./x -h"),
            ("run a b", "a", "b"),
            ("run a -- ./x -- y", "a", "./x -- y"),
            ("run a b -- ./x", "a b", "./x"),
            ("run nightly --wait 5s -- ./x", "nightly", "./x"),
            ("run --wait 5s --shared nightly ./x", "nightly", "./x"),
            ("run --wait=5s -vv nightly ./x", "nightly", "./x"),
            ("run --root /a --zk b nightly ./x", "nightly", "./x"),
            ("--root /a -v run nightly ./x", "nightly", "./x"),
            ("elect api ./x --id 1", "api", "./x --id 1"),
            ("elect --id 1 api ./x", "api", "./x"),
            ("elect api --id 1 -- ./x", "api", "./x"),
        ] {
            let expected = Ok((names.to_owned(), command.to_owned()));
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_missing_or_stands_behind_the_name_is_said_in_one_line() {
        for (line, says) in [
            (
                "run",
                "a name and a command are missing: lockkeeper run NAME ./work.sh",
            ),
            ("run --shared", "a name and a command are missing"),
            (
                "run -- ./x",
                "a name is missing: lockkeeper run NAME ./work.sh",
            ),
            ("elect", "lockkeeper elect NAME ./work.sh"),
            (
                "run nightly",
                "no command was given to run under nightly: lockkeeper run nightly ./work.sh",
            ),
            ("run nightly --", "no command was given"),
            ("run a b --", "no command was given"),
            ("run nightly --wait 5s", "no command was given"),
            ("run --wait 5s nightly", "no command was given"),
            (
                "run nightly --wait 5s ./x",
                "--wait stands behind the name: write options before it",
            ),
            (
                "run nightly --auth=a:secret ./x",
                "--auth stands behind the name",
            ),
            ("run nightly --all ./x", "--all stands behind the name"),
            ("run nightly -v ./x", "-v stands behind the name"),
            ("elect api --id 1 ./x", "lockkeeper elect --id .. NAME CMD"),
            (
                "run nightly ./x -- y",
                "\"./x\" is no name of a lock: a command with a `--` of its own",
            ),
            (
                "run nightly grep -r -- foo",
                "-r is no option of `run`: a command with a `--` of its own needs one before it",
            ),
            (
                "elect api ./x -- y",
                "`elect` has one name: a command with a `--` of its own needs one before it",
            ),
            ("run --what a ./x", "unexpected argument '--what'"),
            ("run --wait -5 a ./x", "a time is not below zero"),
            ("run --wait --shared a ./x", "a number alone is seconds"),
            ("run --wait 1month a ./x", "write days"),
            ("run --wait a ./x", "a number alone is seconds"),
            ("run --hold-at-most 0 a ./x", "it must be more"),
            (
                "run --hold-at-least 2m --hold-at-most 1m a ./x",
                "--hold-at-least is longer",
            ),
            (
                "elect --hold-at-least 2m --hold-at-most 1m a ./x",
                "--hold-at-least is longer",
            ),
        ] {
            let error = read(line).unwrap_err();
            let (first, _) = error.split_once('\n').unwrap();
            assert!(first.contains(says), "{line}: {error}");
            assert!(!error.contains("secret"), "{line}: {error}");
        }
    }

    #[test]
    fn both_forms_are_in_the_usage_and_no_option_is_as_if_required() {
        for order in ["run", "elect"] {
            let error = read(order).unwrap_err();
            let usage = format!("Usage: lockkeeper {order} [OPTIONS] NAME CMD [ARGS]...");
            assert!(
                error.contains(&usage) && error.contains(" -- CMD"),
                "{error}"
            );
        }
        let words = ["lockkeeper", "--root", "/x", "--zk", "a", "queue"];
        let error = Arguments::read(words, &[]).unwrap_err().to_string();
        assert!(
            error.contains("Usage: lockkeeper queue [OPTIONS] <NAME>"),
            "{error}"
        );
    }
}
