//! `help`: the long help of a command, or a page on a topic. It asks no server.

use clap::Command;

use crate::args::{self, Help, notes};
use crate::failure::Failure;
use crate::report;

const TOPICS: [&str; 3] = ["locks", "exit-codes", "environment"];

pub(crate) fn run(order: &Help) -> Result<u8, Failure> {
    let mut tool = args::tool();
    tool.build();
    let text = match order.about.as_deref() {
        None => tool.render_long_help().to_string(),
        Some("locks") => notes::LOCKS.to_owned(),
        Some("exit-codes") => notes::EXIT_CODES.to_owned(),
        Some("environment") => environment(),
        Some(word) => of_command(&mut tool, word)?,
    };
    report::print(text.trim_end())?;
    Ok(0)
}

fn of_command(tool: &mut Command, word: &str) -> Result<String, Failure> {
    if let Some(command) = tool.find_subcommand_mut(word) {
        return Ok(command.render_long_help().to_string());
    }
    let commands = tool.get_subcommands().map(Command::get_name);
    let there: Vec<&str> = commands.chain(TOPICS).collect();
    Err(Failure::NoTopic {
        word: word.to_owned(),
        there: there.join(", "),
    })
}

/// The variables of the options, between what is said of all and what a command gets.
fn environment() -> String {
    let mut text = notes::ENVIRONMENT.to_owned();
    for option in args::connection() {
        if let (Some(variable), Some(long)) = (option.get_env(), option.get_long()) {
            text += &format!("  {:28}--{long}\n", variable.to_string_lossy());
        }
    }
    text + notes::OTHER_VARIABLES
}
