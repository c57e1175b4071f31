//! What a process is doing, if it is one of this host.
//!
//! It tells only what this host says. Of another host it knows nothing, and says so; of a container
//! or a virtual machine that has the same name as this host it cannot know that it is another one.

use std::collections::HashMap;
use std::time::Duration;

use lockkeeper::{QueueEntry, Token};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::time::sleep;

const A_MOMENT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Runs,
    /// By a signal or a debugger: it sends no beats.
    Stopped,
    Ended,
}

impl Doing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
        }
    }
}

/// What the processes of these tickets are doing, as far as it can be known.
pub(crate) async fn of(tickets: impl Iterator<Item = &QueueEntry>) -> HashMap<Token, Doing> {
    let here = gethostname::gethostname();
    let ours = |ticket: &QueueEntry| {
        let pid = ticket.pid.filter(|pid| *pid > 0)?;
        let is_here = ticket.host.as_deref() == Some(&*here.to_string_lossy());
        (is_here && cfg!(target_os = "linux")).then_some((ticket.token, pid))
    };
    let pids: HashMap<Token, u32> = tickets.filter_map(ours).collect();
    let mut doing: HashMap<u32, Option<Doing>> = HashMap::new();
    for pid in pids.values() {
        doing.entry(*pid).or_insert_with(|| look(*pid));
    }
    if doing.values().any(|it| *it == Some(Doing::Stopped)) {
        // A debugger, or a tracer, stops its process again and again for a moment.
        sleep(A_MOMENT).await;
        for (pid, doing) in &mut doing {
            if *doing == Some(Doing::Stopped) {
                *doing = look(*pid);
            }
        }
    }
    let known = pids.into_iter();
    known
        .filter_map(|(token, pid)| Some((token, doing[&pid]?)))
        .collect()
}

/// The processes of a group that have not ended. None if this host shows no process of it:
/// `/proc` is of another namespace, or hides strangers.
pub(crate) fn alive_in(group: Pid) -> Option<Vec<Pid>> {
    let myself = std::fs::read_link("/proc/self").ok()?;
    if myself.to_str() != Some(&std::process::id().to_string()) {
        return None;
    }
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let members = processes.filter_map(|process| {
        let pid: i32 = process.file_name().to_str()?.parse().ok()?;
        // It may end meanwhile.
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let member = Member::of(&stat)?;
        (member.group == group.as_raw()).then_some((Pid::from_raw(pid), member.is_alive))
    });
    let members: Vec<(Pid, bool)> = members.collect();
    let alive = members.iter().filter(|(_, is_alive)| *is_alive);
    (!members.is_empty()).then(|| alive.map(|(pid, _)| *pid).collect())
}

/// Whether a process of this host runs us: the command that it started is one of our ancestors, or
/// ourselves. What has outlived such a command does not count.
pub(crate) fn runs_us(tool: u32) -> bool {
    let mut process = std::process::id();
    let parent = |member: &Member| u32::try_from(member.parent).ok();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        let Some(member) = stat.ok().and_then(|stat| Member::of(&stat)) else {
            return false;
        };
        match parent(&member) {
            // Orphans are the tool's children, too.
            Some(parent) if parent == tool => {
                let id = i32::try_from(process).unwrap_or_default();
                return member.group == id && member.session != id;
            }
            Some(parent @ 1..) => process = parent,
            _ => return false,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    parent: i32,
    group: i32,
    session: i32,
    is_alive: bool,
}

impl Member {
    /// By `/proc/PID/stat`.
    fn of(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let threads: u32 = fields.get(17)?.parse().ok()?;
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            // A process whose first thread has ended looks dead, and works on in the others.
            is_alive: state(stat)? != Doing::Ended || threads > 1,
        })
    }
}

fn look(pid: u32) -> Option<Doing> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => state(&stat),
        // `/proc` may hide the processes of other users, the kernel does not.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?);
            (kill(pid, None) == Err(Errno::ESRCH)).then_some(Doing::Ended)
        }
        // It ended while we looked, or we may not.
        Err(_) => None,
    }
}

/// The letter behind the command, which may hold anything, brackets too.
fn state(stat: &str) -> Option<Doing> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(match rest.trim_start().chars().next()? {
        'T' | 't' => Doing::Stopped,
        'Z' | 'X' | 'x' => Doing::Ended,
        _ => Doing::Runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_last_bracket() {
        assert_eq!(state("7 (sh) S 1 7"), Some(Doing::Runs));
        assert_eq!(state("7 (a) T) T 1 7"), Some(Doing::Stopped));
        assert_eq!(state("7 (a b) Z 1 7"), Some(Doing::Ended));
        assert_eq!(state("7"), None);
    }

    #[test]
    fn a_dead_process_has_no_thread_that_works_on() {
        let member = |state: &str, threads: u32| {
            let zeros = "0 ".repeat(14);
            Member::of(&format!("7 (a) b) {state} 1 42 {zeros}{threads} 0 9"))
        };
        let of = |is_alive| {
            Some(Member {
                parent: 1,
                group: 42,
                session: 0,
                is_alive,
            })
        };

        assert_eq!(member("S", 1), of(true));
        assert_eq!(member("Z", 1), of(false));
        assert_eq!(member("Z", 3), of(true));
        assert_eq!(Member::of("7 (a) S 1 42"), None);
    }
}
