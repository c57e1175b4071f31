//! Where the value of an option comes from: the words, a variable, a file, or nowhere. (pure)

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::settings::{Origin, Settings};

/// What the user has said, by words, variables and files.
pub(super) struct Told<'a> {
    /// Of the order, without those of a file.
    words: &'a ArgMatches,
    settings: &'a Settings,
}

impl<'a> Told<'a> {
    pub(super) fn new(words: &'a ArgMatches, settings: &'a Settings) -> Self {
        Self { words, settings }
    }

    /// Where the servers come from, by either word.
    pub(super) fn origin_of_place(&self) -> Origin {
        self.origin(self.word_of_place())
    }

    fn word_of_place(&self) -> &'static str {
        match self.origin("zk").rank() > self.origin("servers").rank() {
            true => "zk",
            false => "servers",
        }
    }

    /// Where the value of an option comes from; an option that the order does not have, from
    /// nowhere.
    pub(super) fn origin(&self, id: &str) -> Origin {
        if self.words.try_contains_id(id).is_err() {
            return Origin::Default;
        }
        match (self.words.value_source(id), self.settings.of(id)) {
            (Some(ValueSource::CommandLine), _) => Origin::Option,
            (Some(ValueSource::EnvVariable), _) => Origin::Variable(variable(id)),
            (_, Some(setting)) => setting.origin(),
            (_, None) => Origin::Default,
        }
    }

    /// The text of an option that has one.
    pub(super) fn text(&self, id: &str) -> Option<&str> {
        match self.origin(id) {
            Origin::File { .. } => Some(&self.settings.of(id)?.text),
            _ => self.words.get_one::<String>(id).map(String::as_str),
        }
    }

    /// How the user has said it, if at all: `--tick`, `--tick (LOCKKEEPER_TICK)`, or the line of a
    /// file. A flag that is not set is not said.
    pub(super) fn saying(&self, id: &str) -> Option<String> {
        let origin = self.origin(id);
        let option = format!("--{}", id.replace('_', "-"));
        let is_set = || !matches!(self.words.try_get_one::<bool>(id), Ok(Some(false)));
        match origin {
            Origin::Option => Some(option),
            Origin::Variable(name) => is_set().then(|| format!("{option} ({name})")),
            Origin::File { file, line } => {
                let said = format!("{id} ({}, line {line})", file.display());
                self.settings.is_set(id).then_some(said)
            }
            Origin::Default => None,
        }
    }
}

/// The variable of an option.
fn variable(id: &str) -> String {
    format!("LOCKKEEPER_{}", id.to_uppercase())
}
