//! The URL of a database, with options of ours.
//!
//! Invariant: what is told of a URL is without its user and password.

use crate::error::{AT_IN_OPTIONS, Error, Result};

/// Which database a URL is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MySql,
}

#[derive(Debug)]
pub(super) struct SqlUrl {
    pub(super) dialect: DatabaseKind,
    /// The URL as the client crate takes it.
    plain: String,
    options: Vec<(String, String)>,
}

impl SqlUrl {
    /// A URL with the scheme `postgres+kind`, `mysql+kind`, or that of the database alone. Options
    /// with these names are ours.
    pub(super) fn parse(url: &str, kind: &str, ours: &[&str]) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let of_kind = scheme.split_once('+');
        let family = of_kind.map_or(scheme, |(family, _)| family);
        let dialect = match family {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Some(DatabaseKind::Postgres),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Some(DatabaseKind::MySql),
            _ => None,
        };
        let dialect = dialect.filter(|_| of_kind.is_none_or(|(_, given)| given == kind));
        let Some(dialect) = dialect else {
            let why = format!("it begins with postgres+{kind}:// or mysql+{kind}://, as built in");
            return Err(Error::invalid_url(url, why));
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Vec::new();
        let mut theirs = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            check(key, value).map_err(|why| Error::invalid_url(url, why))?;
            if ours.contains(&key) {
                options.push((key.to_owned(), value.to_owned()));
            } else {
                theirs.push(part);
            }
        }
        let mut plain = format!("{}://{address}", dialect.scheme());
        if !theirs.is_empty() {
            plain = format!("{plain}?{}", theirs.join("&"));
        }
        Ok(Self {
            dialect,
            plain,
            options,
        })
    }

    pub(super) fn plain(&self) -> &str {
        &self.plain
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| &**value)
    }

    /// The name of a table or a column, which goes into statements as it is.
    pub(super) fn identifier(&self, option: &str, default: &str) -> Result<String> {
        identifier(self.option(option).unwrap_or(default))
    }
}

impl DatabaseKind {
    fn scheme(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => "postgres",
            #[cfg(feature = "mysql")]
            Self::MySql => "mysql",
        }
    }

    /// One of two texts: PostgreSQL's, or MariaDB's and MySQL's.
    pub(super) fn pick<T>(self, postgres: T, mysql: T) -> T {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => {
                drop(mysql);
                postgres
            }
            #[cfg(feature = "mysql")]
            Self::MySql => {
                drop(postgres);
                mysql
            }
        }
    }
}

/// Letters, digits and `_`, with a schema before it at most: nothing that would need quotes.
pub(super) fn identifier(name: &str) -> Result<String> {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    if name.split('.').count() <= 2 && name.split('.').all(is_word) {
        return Ok(name.to_owned());
    }
    Err(Error::InvalidOption {
        what: "table or column",
        given: name.to_owned(),
        why: "it has letters, digits and _ only, and begins with no digit".into(),
    })
}

fn check(key: &str, value: &str) -> Result<(), String> {
    if [key, value].iter().any(|text| text.contains('@')) {
        return Err(AT_IN_OPTIONS.into());
    }
    if asks_for_tls(key, value) {
        return Err(format!(
            "`{key}={value}` asks for TLS, which is not built in"
        ));
    }
    Ok(())
}

fn asks_for_tls(key: &str, value: &str) -> bool {
    match key {
        "sslmode" | "ssl-mode" | "ssl_mode" => !matches!(
            &*value.to_lowercase(),
            "disable" | "disabled" | "prefer" | "preferred"
        ),
        "sslnegotiation" | "sslrootcert" | "sslcert" => true,
        "require_ssl" | "verify_ca" | "verify_identity" => value == "true",
        _ => false,
    }
}
