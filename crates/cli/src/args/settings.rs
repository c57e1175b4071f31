//! The files with settings: where they are, and what they say.
//!
//! Invariant: a setting is what the value of its option would be, and is checked as such, by the
//! same parser. Nothing in a file is left out in silence but what [`Settings::leave_out`] is told.

use std::collections::BTreeMap;
use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::failure::Failure;
use crate::files;

const NAME: &str = "lockkeeper/lockkeeper.toml";
const OF_ALL_USERS: &str = "/etc";
/// In place of a file: no settings.
const NO_FILE: &str = "/dev/null";

/// Options that have no setting: the older word, and the file itself.
const NOT_IN_FILES: [&str; 2] = ["zk", "config"];
/// Of these two, one stands for the other.
const CREDENTIALS: [&str; 2] = ["auth", "auth_file"];

/// Where files with settings may be. The first wins.
pub(crate) fn places() -> Vec<PathBuf> {
    let folder = |variable: &str| env::var_os(variable).map(PathBuf::from);
    // As the XDG base directories are defined, a relative path does not count.
    let own = folder("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let own = own.or_else(|| Some(folder("HOME")?.join(".config")));
    let all = own.into_iter().chain([PathBuf::from(OF_ALL_USERS)]);
    all.map(|folder| folder.join(NAME)).collect()
}

/// Where a value comes from. Each stands before those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Option,
    /// Of the environment.
    Variable(String),
    File {
        file: Arc<Path>,
        line: usize,
    },
    Default,
}

impl Origin {
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Option => 3,
            Self::Variable(_) => 2,
            Self::File { .. } => 1,
            Self::Default => 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("option"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File { file, line } => write!(f, "file {}, line {line}", file.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// The files that were read.
    pub(crate) files: Vec<Arc<Path>>,
    /// The places where none was.
    pub(crate) missing: Vec<PathBuf>,
    settings: BTreeMap<String, Setting>,
    /// Those that are not for the chosen store, and why.
    pub(crate) left_out: Vec<(String, Setting, &'static str)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(super) text: String,
    is_flag: bool,
    file: Arc<Path>,
    line: usize,
}

impl Setting {
    pub(crate) fn origin(&self) -> Origin {
        let (file, line) = (Arc::clone(&self.file), self.line);
        Origin::File { file, line }
    }
}

impl Settings {
    /// Reads the named file, or those that are there, for these options.
    pub(super) fn read(
        named: Option<&Path>,
        places: &[PathBuf],
        options: &[Arg],
    ) -> Result<Self, Failure> {
        let mut read = Self::default();
        match named {
            Some(file) if file == Path::new(NO_FILE) => {}
            Some(file) => read.take_in(file, options)?,
            None => {
                for place in places {
                    match read.take_in(place, options) {
                        Err(Failure::Settings { source, .. }) if is_missing(source.kind()) => {
                            read.missing.push(place.clone());
                        }
                        result => result?,
                    }
                }
            }
        }
        Ok(read)
    }

    /// A setting that an earlier file has stays.
    fn take_in(&mut self, file: &Path, options: &[Arg]) -> Result<(), Failure> {
        let (text, is_open) = files::read(file).map_err(|source| Failure::Settings {
            file: file.to_owned(),
            source,
        })?;
        let file: Arc<Path> = file.into();
        let settings = parse(&text, &file, options)?;
        if is_open && settings.iter().any(|(id, setting)| is_secret(id, setting)) {
            files::warn_of_readers(&file);
        }
        let has_credential = CREDENTIALS.iter().any(|id| self.settings.contains_key(*id));
        for (id, setting) in settings {
            if !(has_credential && CREDENTIALS.contains(&&*id)) {
                self.settings.entry(id).or_insert(setting);
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Whether it is said, and no flag that is not set.
    pub(super) fn is_set(&self, id: &str) -> bool {
        let is_unset = |setting: &Setting| setting.is_flag && setting.text == "false";
        self.of(id).is_some_and(|setting| !is_unset(setting))
    }

    pub(super) fn of(&self, id: &str) -> Option<&Setting> {
        self.settings.get(id)
    }

    /// Whether the file that has this setting also says where the locks are.
    pub(super) fn is_beside_servers(&self, id: &str) -> bool {
        let file = |id| Some(&self.of(id)?.file);
        file(id).is_some() && file(id) == file("servers")
    }

    pub(super) fn leave_out(&mut self, id: &str, why: &'static str) {
        if let Some((id, setting)) = self.settings.remove_entry(id) {
            self.left_out.push((id, setting, why));
        }
    }

    /// The settings as words, of the options that these are.
    pub(super) fn words(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
        let wanted = self.settings.iter().filter(|(id, _)| is_wanted(id));
        let words = wanted.filter_map(|(id, setting)| word(id, &setting.text, setting.is_flag));
        words.map(OsString::from).collect()
    }
}

fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_secret(id: &str, setting: &Setting) -> bool {
    let url = &setting.text;
    let has_secret = || url.contains('@') || url.contains("password=");
    id == "auth" || (id == "servers" && has_secret())
}

/// A flag is a word when it is set.
fn word(id: &str, text: &str, is_flag: bool) -> Option<String> {
    let option = format!("--{}", id.replace('_', "-"));
    match text {
        "false" if is_flag => None,
        _ if is_flag => Some(option),
        text => Some(format!("{option}={text}")),
    }
}

fn parse(
    text: &str,
    file: &Arc<Path>,
    options: &[Arg],
) -> Result<BTreeMap<String, Setting>, Failure> {
    let options = options
        .iter()
        .filter(|option| !NOT_IN_FILES.contains(&id(option)));
    let options: Vec<&Arg> = options.collect();
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let refused = |at, why| Failure::Setting {
        file: file.to_path_buf(),
        line: line(at),
        why,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        refused(at, error.message().to_owned())
    })?;
    let mut settings = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let (name, at) = (key.get_ref(), key.span().start);
        let Some(option) = options.iter().find(|option| id(option) == name) else {
            let all: Vec<&str> = options.iter().map(|option| id(option)).collect();
            let why = format!("there is no setting {name}; there are {}", all.join(", "));
            return Err(refused(at, why));
        };
        let text = text_of(option, value).map_err(|why| refused(at, format!("{name} {why}")))?;
        let setting = Setting {
            text,
            is_flag: is_flag(option),
            file: Arc::clone(file),
            line: line(at),
        };
        settings.insert(id(option).to_owned(), setting);
    }
    Ok(settings)
}

fn id(option: &Arg) -> &str {
    option.get_id().as_str()
}

fn is_flag(option: &Arg) -> bool {
    !option.get_action().takes_values()
}

/// The value as the option would have it, or what it should be.
fn text_of(option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let is_flag = is_flag(option);
    let names = option.get_value_names().unwrap_or_default();
    let is_time = names.iter().any(|name| name.as_str() == "TIME");
    let text = match value.get_ref() {
        DeValue::Boolean(is_set) if is_flag => is_set.to_string(),
        DeValue::String(text) if !is_flag => text.clone().into_owned(),
        DeValue::Integer(number) if is_time => number.to_string(),
        _ if is_flag => return Err("is true or false, without quotes".into()),
        _ if is_time => return Err("is a time, in quotes: \"10s\"".into()),
        _ => return Err("is a text, in quotes".into()),
    };
    check(option, &text).map(|()| text)
}

/// Whether the option takes it.
fn check(option: &Arg, text: &str) -> Result<(), String> {
    let Some(word) = word(id(option), text, is_flag(option)) else {
        return Ok(());
    };
    let command = Command::new("lockkeeper").arg(option.clone().env(None::<&'static str>));
    let Err(error) = command.try_get_matches_from(["lockkeeper", &word]) else {
        return Ok(());
    };
    let possible = option.get_possible_values();
    let possible: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
    // The value itself is not shown.
    Err(match error.source() {
        Some(why) => format!("is refused: {why}"),
        None if possible.is_empty() => "must not be empty".into(),
        None => format!("must be {}", possible.join(" or ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::connection;

    fn read(text: &str) -> Result<Settings, String> {
        let settings = parse(text, &Path::new("f.toml").into(), &connection());
        let settings = settings.map_err(|failure| failure.to_string())?;
        Ok(Settings {
            settings,
            ..Settings::default()
        })
    }

    #[test]
    fn every_option_of_the_connection_has_a_variable_and_may_stand_in_a_file() {
        let mut file = String::new();
        for option in connection() {
            let id = id(&option);
            let variable = option.get_env().unwrap().to_str().unwrap();
            assert_eq!(variable, format!("LOCKKEEPER_{}", id.to_uppercase()));
            file += &match id {
                "zk" | "config" => continue,
                "require_tls" | "create_chroot" | "no_strict_acl" => format!("{id} = true\n"),
                "session_timeout" | "connect_timeout" | "read_timeout" | "tick" => {
                    format!("{id} = \"3s\"\n")
                }
                "dialect" => format!("{id} = \"kazoo\"\n"),
                "acl" => format!("{id} = \"open\"\n"),
                _ => format!("{id} = \"x:y:z\"\n"),
            };
        }

        let settings = read(&file).unwrap();

        assert_eq!(settings.words(|_| true).len(), file.lines().count());
        assert!(settings.words(|_| true).contains(&"--tick=3s".into()));
        assert!(settings.words(|_| true).contains(&"--require-tls".into()));
        assert_eq!(settings.words(|id| id == "root"), ["--root=x:y:z"]);
    }

    #[test]
    fn a_setting_that_is_wrong_is_told_with_its_line_and_the_way_out() {
        for (text, says) in [
            (
                "\nrot = \"/a\"",
                "f.toml, line 2: there is no setting rot; there are servers, root,",
            ),
            (
                "zk = \"a:1\"",
                "line 1: there is no setting zk; there are servers",
            ),
            (
                "[server]\nroot = \"/a\"",
                "line 1: there is no setting server",
            ),
            ("# so\n\nroot = 5", "line 3: root is a text, in quotes"),
            ("root = [\"/a\"]", "line 1: root is a text, in quotes"),
            ("tick = true", "line 1: tick is a time, in quotes"),
            ("tick = \"soon\"", "line 1: tick is refused: "),
            (
                "require_tls = \"true\"",
                "require_tls is true or false, without quotes",
            ),
            ("dialect = \"zkpython\"", "dialect must be curator or kazoo"),
            ("tls_ca = \"\"", "tls_ca must not be empty"),
            ("acl = \"everybody\"", "acl is refused: "),
            ("root = \"/a\"\nroot = \"/b\"", "line 2: duplicate key"),
            ("root = /a", "line 1: "),
            ("root", "line 1: "),
            ("root = \"true\"\ntick = 5.0", "line 2: tick is a time"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn no_secret_is_in_a_refusal() {
        for text in ["auth = secret", "auth = [\"secret\"]"] {
            let error = read(text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unset_flag_is_no_word() {
        let settings = read("require_tls = false").unwrap();

        assert!(settings.of("require_tls").is_some());
        assert!(settings.words(|_| true).is_empty());
    }
}
