//! The example of a service that shows its metrics, in a process of its own: what it shows to
//! Prometheus moves as the locks do.

use std::io;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::runtime::Runtime;

use super::page::Page;
use testbench::{World, case, eventually, ports};

#[path = "../../../examples/service.rs"]
#[allow(dead_code, reason = "its main")]
mod example;

/// Where the process is to serve its page, and its servers.
const ORDER: &str = "LOCKKEEPER_SERVICE";

/// The process of the service, if this is it. It works until it is killed.
pub(crate) fn child() -> Option<ExitCode> {
    let order = std::env::var(ORDER).ok()?;
    let (page, servers) = order.split_once(' ').expect("an address and servers");
    let service = async {
        example::show(page.parse()?)?;
        example::serve(servers).await
    };
    let failed = Runtime::new().unwrap().block_on(service);
    eprintln!("the service has ended: {failed:?}");
    Some(ExitCode::FAILURE)
}

#[case(within = 120)]
async fn the_example_of_a_service_shows_how_its_locks_move(world: World) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let reserved = ports::reserve(1).unwrap();
    let port = reserved[0].number;
    let order = format!("127.0.0.1:{port} {}", world.connect_string());
    let _service = Command::new(std::env::current_exe().unwrap())
        .env(ORDER, order)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let scrape = || async {
        scrape(port)
            .await
            .ok()
            .map(|text| (Page::parse(&text), text))
    };

    let (first, _) = eventually("its first page", PATIENCE, scrape).await;
    for (class, kind) in [
        ("orders", "mutex"),
        ("prices", "read"),
        ("prices", "write"),
        ("downloads", "permit"),
        ("scheduler", "leadership"),
        ("transfers", "several"),
    ] {
        let labels = [format!("class=\"{class}\""), format!("kind=\"{kind}\"")];
        let labels = labels.each_ref().map(String::as_str);
        let moves = || async {
            let (next, _) = scrape().await?;
            let grows = |metric: &str| {
                let [before, after] = [&first, &next].map(|page| page.sum(metric, &labels));
                after > before
            };
            // Others are there, too, but for a moment.
            let is_held = next.sum("lockkeeper_held", &labels) > 0.0;
            let all = [
                "wait_seconds_count",
                "wait_seconds_sum",
                "hold_seconds_count",
                "hold_seconds_sum",
                "queue_length_sum",
            ];
            let grow = all
                .iter()
                .all(|metric| grows(&format!("lockkeeper_{metric}")));
            (grow && is_held).then_some(())
        };
        eventually(
            &format!("{class}, {kind}: all of them move"),
            PATIENCE,
            moves,
        )
        .await;
    }
    let is_lost = || async {
        let (next, text) = scrape().await?;
        let lost = ["class=\"reports\"", "reason=\"ticket\""];
        let timed_out = ["class=\"orders\""];
        let is_seen = next.sum("lockkeeper_lost_total", &lost)
            > first.sum("lockkeeper_lost_total", &lost)
            && next.sum("lockkeeper_timeouts_total", &timed_out) > 0.0;
        is_seen.then_some(text)
    };
    let text = eventually("a lock is lost, and a call timed out", PATIENCE, is_lost).await;

    // What the names mean is on the page, and the bounds that quantiles are computed from.
    assert!(
        text.contains("# HELP lockkeeper_held Locks that are held."),
        "{text}"
    );
    assert!(text.contains("lockkeeper_wait_seconds_bucket{"), "{text}");
    assert_eq!(Page::parse(&text).sum("lockkeeper_sessions", &[]), 1.0);
}

/// Asks for the page as Prometheus does.
async fn scrape(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.starts_with("HTTP/1.1 200 ") && body.contains("lockkeeper_") {
        true => Ok(body.to_owned()),
        false => Err(io::Error::other(head.to_owned())),
    }
}
