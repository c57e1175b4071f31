//! Notes every panic on the threads of a case, so that a panic in a background task fails the case
//! too.
//!
//! The threads of a case's runtime carry the case's name. Threads that a case starts by itself are
//! not seen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

#[derive(Default)]
struct Notes {
    panics: Vec<String>,
    expected: bool,
    /// The case has ended, and its runtime is being shut down.
    is_over: bool,
}

static NOTES: Mutex<Option<HashMap<String, Notes>>> = Mutex::new(None);

fn notes() -> MutexGuard<'static, Option<HashMap<String, Notes>>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a case's notes.
pub(crate) fn watch(case: &str) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if let Some(name) = std::thread::current().name() {
                if let Some(case) = notes().as_mut().and_then(|notes| notes.get_mut(name)) {
                    let place = panic
                        .location()
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    // Where its own task goes first, the client crate panics in those that still
                    // wait; the link takes that for the end of the session.
                    if case.is_over && place.contains("/zookeeper-client-") {
                        return;
                    }
                    let payload = panic.payload();
                    let words = payload.downcast_ref::<String>().map(String::as_str);
                    let words = words
                        .or_else(|| payload.downcast_ref::<&str>().copied())
                        .unwrap_or("(no words)");
                    case.panics.push(format!("panicked at {place}: {words}"));
                }
            }
            before(panic);
        }));
    });
    notes()
        .get_or_insert_default()
        .insert(case.to_owned(), Notes::default());
}

/// What the client crate does in a runtime that shuts down is not noted from here on.
pub(crate) fn case_is_over(case: &str) {
    if let Some(notes) = notes().as_mut().and_then(|notes| notes.get_mut(case)) {
        notes.is_over = true;
    }
}

/// Ends a case's notes: all its panics, unless it said that some were coming.
pub(crate) fn taken(case: &str, even_expected: bool) -> Vec<String> {
    let notes = notes()
        .as_mut()
        .and_then(|notes| notes.remove(case))
        .unwrap_or_default();
    if notes.expected && !even_expected {
        Vec::new()
    } else {
        notes.panics
    }
}

/// Says that tasks of this case are going to panic. The case's own panic still fails it.
pub fn expect_panics() {
    let thread = std::thread::current();
    let mut notes = notes();
    let case = thread.name().and_then(|name| notes.as_mut()?.get_mut(name));
    case.expect("called on a thread of a case").expected = true;
}
