//! What an error of PostgreSQL means for a session. (pure)
//!
//! Invariant: an answer with an error has changed nothing, because each request is a transaction of
//! its own. No text has a password.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use crate::error::UnreachableReason;
use crate::link::stored::{Trouble, Ungreeted};
use crate::link::tls::refusal;
use crate::link::{Code, Right};

pub(super) fn words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Of a request of a session.
pub(super) fn trouble(error: &Error) -> Trouble {
    let words = words(error);
    let Some(code) = error.code() else {
        return Trouble::Lost(words);
    };
    match code.code() {
        // A deadlock, a row that is locked for long, a statement that was cancelled; a ticket that
        // was taken meanwhile.
        "40001" | "40P01" | "55P03" | "57014" | "LK002" => Trouble::Refused(Code::NotNow(words)),
        // A ticket whose name somebody else has made.
        "23505" => Trouble::Refused(Code::NodeExists),
        // The disk or the memory is full, or there are too many connections.
        code if code.starts_with("53") => Trouble::Refused(Code::NotNow(words)),
        "42501" => Trouble::Refused(Code::NoAuth(Right::Write)),
        "3F000" | "42P01" | "42703" | "42704" | "42883" => {
            Trouble::Refused(Code::Other(format!("{words}: {REMADE}")))
        }
        // It has become a standby, or it ends, or ends what takes too long, or what was prepared is
        // of no use any more: another connection settles it.
        "25006" | "25P03" | "25P04" | "55000" | "0A000" | "26000" => Trouble::Lost(words),
        "54000" if is_long_name(error) => Trouble::Refused(Code::Other(format!(
            "the name is too long for PostgreSQL: {words}"
        ))),
        // There are too many notifications that somebody has not taken yet.
        "54000" => Trouble::Refused(Code::NotNow(words)),
        code if code.starts_with("08") || code.starts_with("57P") => Trouble::Lost(words),
        _ => Trouble::Refused(Code::Other(words)),
    }
}

/// Whether an index has no room for it. The words may be in another language.
fn is_long_name(error: &Error) -> bool {
    let is_of_index = |error: &DbError| {
        error.message().starts_with("index row")
            || matches!(
                error.routine(),
                Some("_bt_check_third_page" | "index_form_tuple" | "index_form_tuple_context")
            )
    };
    error.as_db_error().is_some_and(is_of_index)
}

/// The way out of a schema that is not whole.
pub(super) const REMADE: &str = "a part of the schema was dropped or changed. Stop all keepers on it, drop the schema, and the next keeper makes it again";

/// Of a connection that is made.
pub(super) fn ungreeted(error: &Error) -> Ungreeted {
    let words = words(error);
    let refusing = |why: String| Ungreeted::Unreachable(UnreachableReason::Refusing(why));
    if let Some(code) = error.code() {
        return match code.code() {
            "28000" if words.contains("no encryption") => refusing(format!(
                "{words}: it may want TLS, as ?sslmode=verify-full asks for it"
            )),
            code if code.starts_with("28") => Ungreeted::Unauthenticated(words),
            "42501" => refusing(format!(
                "{words}: the user needs CREATE on the database, or a schema that was made before, with USAGE on it and all rights on its tables"
            )),
            "3D000" => refusing(format!("{words}: create the database first")),
            "3F000" | "42P01" | "42703" | "42704" | "42883" => {
                refusing(format!("{words}: {REMADE}"))
            }
            _ => refusing(words),
        };
    }
    if let Some(why) = refusal(error) {
        return refusing(why);
    }
    if words.contains("TLS") {
        return refusing(words);
    }
    let source = error.source().and_then(|source| source.downcast_ref());
    let is_io = source.is_some_and(|io: &io::Error| {
        use io::ErrorKind::{InvalidData, InvalidInput};
        !matches!(io.kind(), InvalidData | InvalidInput)
    });
    if is_io || error.is_closed() {
        let refused = Arc::new(io::Error::other(words));
        return Ungreeted::Unreachable(UnreachableReason::Refused(refused));
    }
    if words.contains("authentication") || words.contains("password") {
        return Ungreeted::Unauthenticated(words);
    }
    refusing(format!("it does not speak PostgreSQL's protocol ({words})"))
}
