//! Bytes that are no requests, or nearly requests.
//!
//! A panic of a task fails the case by itself (see `support/panics.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use super::op::{Op, Path, Place};
use super::script;
use testbench::dice::Dice;
use testbench::wire::{Arrival, Out, Wire};
use testbench::{World, case};

/// What the whole process may grow by, with all that the other cases do at the time.
const MEMORY: u64 = 512 << 20;
/// An absurd count that is believed asks for more than this at once.
const ADDRESS_SPACE: u64 = 1 << 31;

const NOWHERE: Place<'_> = Place {
    root: "/garbage",
    written: &[],
};

#[case(embedded, within = 120)]
async fn garbage_hurts_nobody_but_its_sender(world: World) {
    let server = world.embedded().addr();
    let seed = match std::env::var("LOCKKEEPER_SEED") {
        Ok(seed) => seed.parse().expect("LOCKKEEPER_SEED is a number"),
        Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
    };
    let mut dice = Dice(seed);
    let mut bystander = session(server, 60_000).await;
    let before = (memory("VmRSS:"), memory("VmPeak:"));

    for number in 0..World::times(2_000, 500_000) {
        assert!(
            timeout(Duration::from_secs(10), sender(server, &mut dice))
                .await
                .is_ok(),
            "LOCKKEEPER_SEED={seed}: connection {number} does not end"
        );
        if number % 20 == 0 {
            bystander
                .send(&Op::Exists(Path::Below(""), true).frame(7, &NOWHERE))
                .await;
            let answered = reply(&mut bystander).await;
            assert!(
                answered,
                "LOCKKEEPER_SEED={seed}: after {number} a bystander is not answered"
            );
        }
    }

    let after = (memory("VmRSS:"), memory("VmPeak:"));
    assert!(
        after.0 < before.0 + MEMORY && after.1 < before.1 + ADDRESS_SPACE,
        "LOCKKEEPER_SEED={seed}: memory grew from {before:?} to {after:?}"
    );
}

/// One connection that sends garbage, sooner or later, and is read until the server ends it.
async fn sender(server: SocketAddr, dice: &mut Dice) {
    let mut bytes = Vec::new();
    let mut wire = if dice.one_in(4) {
        let hello = hello(1);
        bytes.extend(if dice.one_in(2) {
            mutated(hello, dice)
        } else {
            noise(dice)
        });
        Wire::dial(server).await
    } else {
        session(server, 1).await
    };
    for xid in 0..1 + dice.below(4) {
        let frame = script::request(dice.next()).frame(xid as i32, &NOWHERE);
        bytes.extend(if dice.one_in(3) {
            frame
        } else {
            mutated(frame, dice)
        });
    }

    wire.send(&bytes).await;
    wire.hang_up().await;

    while let Arrival::Frame(_) = wire.next().await {}
}

fn hello(timeout_ms: i32) -> Vec<u8> {
    let mut out = Out::default();
    out.int(0)
        .long(0)
        .int(timeout_ms)
        .long(0)
        .buffer(Some(&[0; 16]))
        .flag(false);
    out.framed()
}

async fn session(server: SocketAddr, timeout_ms: i32) -> Wire {
    let mut wire = Wire::dial(server).await;
    wire.send(&hello(timeout_ms)).await;
    assert!(
        matches!(wire.next().await, Arrival::Frame(_)),
        "a sound connect request is answered"
    );
    wire
}

/// Whether a reply comes; events may come before it.
async fn reply(wire: &mut Wire) -> bool {
    loop {
        match wire.next().await {
            Arrival::Frame(frame) if frame.starts_with(&[0xff; 4]) => {}
            Arrival::Frame(_) => return true,
            _ => return false,
        }
    }
}

fn noise(dice: &mut Dice) -> Vec<u8> {
    (0..dice.below(100)).map(|_| dice.next() as u8).collect()
}

/// One to three wounds.
fn mutated(mut frame: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    for _ in 0..1 + dice.below(3) {
        let place = dice.below(frame.len().max(1) as u64) as usize;
        match dice.below(6) {
            0 | 1 => {
                if let Some(byte) = frame.get_mut(place) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            2 => frame.truncate(place),
            3 => {
                let added = noise(dice);
                frame.splice(place..place, added);
            }
            // A count or a length that promises too much, or the length of the frame itself.
            4 => write(
                &mut frame,
                place / 4 * 4,
                dice.pick(&[i32::MAX, -1, i32::MIN, 1 << 20, 1 << 24, 0x00ff_ffff, 0]),
            ),
            _ => {
                // The length in front is right again: the wounds are inside.
                let length = frame.len().saturating_sub(4);
                write(&mut frame, 0, length as i32);
            }
        }
    }
    frame
}

fn write(frame: &mut [u8], place: usize, number: i32) {
    if let Some(slot) = frame.get_mut(place..place + 4) {
        slot.copy_from_slice(&number.to_be_bytes());
    }
}

/// A line of `/proc/self/status` in bytes; 0 where there is none.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|text| {
        text.strip_prefix(line)?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) << 10
}
