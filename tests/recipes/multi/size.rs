//! Requests larger than servers read, to the byte: they are refused before they are sent, and cost
//! the session nothing.

use std::time::{Duration, Instant};

use lockkeeper::{Error, Keeper, MultiLock};
use tokio::time::timeout;

use super::SOON;
use testbench::keeper;
use testbench::{Make, World, case};

/// The longest request that servers read (`jute.maxbuffer`).
const MOST: usize = 0xfffff;
/// As many as a set may have.
const LOCKS: usize = 128;
/// Each is six bytes in a ticket.
const ESCAPED: &str = "\u{1}";

/// A set in whose tickets are so many bytes more: in all of them together, and in a name.
fn set(keeper: &Keeper, bytes: usize) -> MultiLock {
    let (each, rest) = (bytes / LOCKS, bytes % LOCKS);
    let names = (0..LOCKS).map(|number| format!("set/{number}"));
    let padded = format!("set/0{}", "x".repeat(rest));
    let set = keeper.multi_lock(names.skip(1).chain([padded])).unwrap();
    set.with_label(ESCAPED.repeat(1024))
        .with_trace_id("x".repeat(each % 6) + &ESCAPED.repeat(each / 6))
}

/// How many bytes such a request has, and that it was refused at once.
async fn refused<T>(call: impl Future<Output = lockkeeper::Result<T>>) -> usize {
    let began = Instant::now();
    let Err(error) = timeout(SOON, call).await.expect("it is refused") else {
        panic!("it was sent");
    };
    assert!(began.elapsed() < Duration::from_secs(3), "{error}");
    let text = error.to_string();
    assert!(
        error.is_invalid() && text.contains(&MOST.to_string()),
        "{text}"
    );
    match error {
        Error::TooLarge { bytes, limit, .. } => {
            assert_eq!(limit, MOST);
            assert!(text.contains(&bytes.to_string()), "{text}");
            bytes
        }
        other => panic!("{other}"),
    }
}

#[case(zookeeper, why = "the limit of a request, jute.maxbuffer")]
async fn servers_read_so_many_bytes_and_no_more(world: World) {
    let stranger = world.raw().await;
    let open = Make::Persistent;
    stranger.create("/large", b"", &open).await.unwrap();
    // The header, a path with the chroot, the length of the data and a version.
    let around = 8 + 4 + world.chroot().len() + "/large".len() + 4 + 4;

    let largest = vec![b'x'; MOST - around];
    stranger.set_data("/large", &largest, None).await.unwrap();
    let beyond = vec![b'x'; MOST + 1 - around];
    let cut = stranger.set_data("/large", &beyond, None).await;
    assert!(cut.is_err(), "{cut:?}");
}

#[case]
async fn the_largest_set_that_servers_read_is_held_and_a_byte_more_is_not_sent(world: World) {
    let keeper = keeper(&world).await;
    let bystander = keeper.mutex("bystander").unwrap().lock().await.unwrap();
    let received = || match world.is_embedded() {
        true => world.embedded().counters().bytes_in,
        false => 0,
    };
    let before = received();

    let all = refused(set(&keeper, LOCKS * 6 * 1000).lock()).await;
    let fits = LOCKS * 6 * 1000 - (all - MOST);
    let error = set(&keeper, fits + 1).lock().await.unwrap_err();
    assert!(
        error.to_string().contains("the tickets of 128 locks"),
        "{error}"
    );
    assert_eq!(refused(set(&keeper, fits + 1).lock()).await, MOST + 1);
    assert_eq!(refused(set(&keeper, fits + 1).try_lock()).await, MOST + 1);
    let waits = set(&keeper, fits + 1);
    assert_eq!(refused(waits.lock_timeout(SOON)).await, MOST + 1);
    let since = received() - before;
    assert!(since < 100 * 1024, "{since} bytes were sent");

    let guard = timeout(4 * SOON, set(&keeper, fits).lock()).await;
    let guard = guard.expect("it is granted").unwrap();
    assert_eq!(guard.names().count(), LOCKS);
    guard.release().await.unwrap();
    bystander.check().await.unwrap();
    bystander.release().await.unwrap();
}

#[case]
async fn the_largest_fenced_write_that_servers_read_commits_and_a_byte_more_is_not_sent(
    world: World,
) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("writes").unwrap().lock().await.unwrap();
    guard.fenced().create("/large", "").commit().await.unwrap();
    let write = |bytes: usize| {
        guard
            .fenced()
            .set("/large", vec![b'x'; bytes], None)
            .commit()
    };

    let all = refused(write(MOST)).await;
    let fits = MOST - (all - MOST);
    assert_eq!(refused(write(fits + 1)).await, MOST + 1);
    timeout(4 * SOON, write(fits)).await.unwrap().unwrap();
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}
