//! Chosen locks in the text format of Prometheus.
//!
//! Invariant: the number of series is bounded, and a scrape asks no server.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use super::picture::{Picture, Row};
use super::routes::{Site, refused};
use crate::pattern::Pattern;

/// The most locks in one answer.
const MOST: usize = 1000;

pub(super) async fn metrics(State(site): State<Arc<Site>>) -> Response<Body> {
    if site.metrics.is_empty() {
        let why = "no lock was chosen: `lockkeeper ui --metrics 'orders/*'` chooses some";
        return refused(StatusCode::NOT_FOUND, why);
    }
    let text = text(&site.desk.picture(), &site.metrics, SystemTime::now());
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response()
}

fn text(picture: &Picture, patterns: &[Pattern], now: SystemTime) -> String {
    let is_chosen = |name: &str| patterns.iter().any(|it| it.matches(name));
    let chosen = picture.rows.iter().filter(|(name, _)| is_chosen(name));
    let chosen: Vec<(&String, &Row)> = chosen.map(|(name, row)| (name, &**row)).collect();
    let shown = &chosen[..chosen.len().min(MOST)];
    let age = |at: Option<SystemTime>| at.and_then(|at| now.duration_since(at).ok());
    let seconds = |at| age(at).map(|age| age.as_secs_f64());
    let mut text = String::new();
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        head(&mut text, name, help);
        for (lock, row) in shown {
            if let Some(value) = value(row) {
                line(
                    &mut text,
                    &format!("{name}{{lock=\"{}\"}}", escaped(lock)),
                    value,
                );
            }
        }
    };
    family(
        "lockkeeper_lock_holders",
        "Tickets that hold the lock.",
        &|row| Some(row.holders() as f64),
    );
    family(
        "lockkeeper_lock_waiters",
        "Tickets that wait for the lock.",
        &|row| Some(row.waiting() as f64),
    );
    family(
        "lockkeeper_lock_holder_age_seconds",
        "Since the first holder asked for the lock, by its host's clock.",
        &|row| seconds(row.queue.iter().find(|it| it.is_holder)?.since),
    );
    family(
        "lockkeeper_lock_deadlocked",
        "1 if owners wait for each other here.",
        &|row| Some(f64::from(u8::from(row.is_in_circle))),
    );
    let left_out = (chosen.len() - shown.len()) as f64;
    let mut single = |name: &str, help: &str, value: Option<f64>| {
        head(&mut text, name, help);
        if let Some(value) = value {
            line(&mut text, name, value);
        }
    };
    single(
        "lockkeeper_ui_up",
        "1 if the last look at the servers went well.",
        Some(f64::from(u8::from(
            picture.error.is_none() && picture.read.is_some(),
        ))),
    );
    single(
        "lockkeeper_ui_read_age_seconds",
        "Since the locks were listed.",
        seconds(picture.read),
    );
    single(
        "lockkeeper_ui_locks_left_out",
        "Chosen locks beyond the first 1000.",
        Some(left_out),
    );
    text
}

fn head(text: &mut String, name: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge").unwrap_or_default();
}

fn line(text: &mut String, series: &str, value: f64) {
    writeln!(text, "{series} {value}").unwrap_or_default();
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str], pattern: &str) -> String {
        let mut picture = Picture::default();
        for name in names {
            picture.put(name, Arc::default(), false);
        }
        text(&picture, &[pattern.parse().unwrap()], SystemTime::now())
    }

    #[test]
    fn only_chosen_locks_are_shown_and_a_star_ends_at_a_slash() {
        let text = shown(&["orders/1", "orders/eu/2", "price"], "orders/*");

        assert!(
            text.contains("lockkeeper_lock_waiters{lock=\"orders/1\"} 0\n"),
            "{text}"
        );
        assert!(
            !text.contains("orders/eu/2") && !text.contains("price"),
            "{text}"
        );
    }

    #[test]
    fn names_are_escaped_and_their_number_is_bounded() {
        let names: Vec<String> = (0..1005).map(|number| format!("n{number}\"\\")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();

        let text = shown(&names, "*");

        assert!(text.contains("{lock=\"n0\\\"\\\\\"}"), "{text}");
        assert!(text.contains("lockkeeper_ui_locks_left_out 5\n"));
        assert_eq!(text.matches("lockkeeper_lock_holders{").count(), 1000);
    }
}
