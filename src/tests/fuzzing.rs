//! What the fuzz targets claim of any bytes: one function each, which panics if its claim does not
//! hold.
//!
//! They are here, and not with the targets in `fuzz/`, because they look at what no user sees.
//! Built for `fuzz/run`, which sets `fuzzing`, and for the tests below, which play the committed
//! corpus without libFuzzer. Nothing of the library uses them.
#![allow(clippy::missing_panics_doc, reason = "to panic is all that they do")]

use uuid::Uuid;

use crate::error::Error;
use crate::keeper::Keeper;
use crate::link::diagnose::with_port;

use crate::name::LockName;
use crate::protocol::acl::Acl;
use crate::protocol::dialect::{check_neighbours, in_doubt};
use crate::protocol::mark::DirectoryData;
use crate::protocol::permits;
use crate::protocol::permits::{HELD, LIMIT, PermitVerdict};
use crate::protocol::ticket::{Mode, Recipe, Ticket, TicketData, asking, in_order, is_revoked};
use zookeeper_embedded::fuzzing as server;

/// Frames and what is in them: see [`server::codec`].
pub fn codec(data: &[u8]) {
    server::codec(data);
}

/// Clients that say anything, in any order: see [`server::conversation`].
pub fn conversation(data: &[u8]) {
    server::conversation(data);
}

const CLAIMS: [Recipe; 7] = [
    Recipe::Lock,
    Recipe::Read,
    Recipe::Write,
    Recipe::Lead,
    Recipe::KazooLock,
    Recipe::KazooRead,
    Recipe::KazooWrite,
];

/// The children of a lock directory, a line each: which are tickets, in which order, and who may
/// stand beside whom.
pub fn directory(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Enough for every rule, and few enough to be quick.
    let children: Vec<String> = text.split('\n').take(48).map(str::to_owned).collect();
    for child in &children {
        a_ticket_is_what_its_name_says(child);
    }
    let tickets: Vec<Ticket> = children
        .iter()
        .filter_map(|child| Ticket::parse(child))
        .collect();
    tickets_have_one_order(&tickets);
    for recipe in CLAIMS {
        strangers_are_named(recipe, &children, tickets.first(), data);
    }
    permits_are_counted(&children, data);
}

fn a_ticket_is_what_its_name_says(child: &str) {
    let Some(ticket) = Ticket::parse(child) else {
        return;
    };
    assert_eq!(ticket.name, child);
    assert!(child.ends_with(&format!("{}{:010}", ticket.tag_text(), ticket.seq)));
    assert!(!ticket.is_before(&ticket));
    assert!(
        LockName::new(child).is_err(),
        "it would join the queue above it"
    );
    assert_eq!(permits::weight(child), None);

    let guest = ticket.guest(Uuid::from_u128(7));
    let shared = ticket.shared();
    for derived in [&guest, &shared] {
        assert_eq!(Ticket::parse(&derived.name).as_ref(), Some(derived));
        assert_eq!(derived.seq, ticket.seq);
    }
    assert!(
        guest.looks_like_ours()
            && guest.kind == ticket.kind
            && guest.tag_text() == ticket.tag_text()
    );
    assert_eq!(shared.kind, Mode::Shared);
    for recipe in CLAIMS {
        let before = ticket.predecessor(recipe);
        assert_eq!(before.is_none(), ticket.seq == 0);
        assert!(before.is_none_or(|before| before.is_before(&ticket)));
    }
}

fn tickets_have_one_order(tickets: &[Ticket]) {
    let ordered = in_order(tickets.to_vec());
    let names = |tickets: &[Ticket]| {
        let mut names: Vec<String> = tickets.iter().map(|ticket| ticket.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&ordered), names(tickets), "nobody is lost");

    // A queue is never half as long as the counter's range; beyond that there is no order to ask
    // for.
    let place = |ticket: &Ticket| i64::from(ticket.seq.wrapping_sub(tickets[0].seq));
    let length = match (ordered.first(), ordered.last()) {
        (Some(first), Some(last)) => place(last) - place(first),
        _ => 0,
    };
    if length <= i64::from(i32::MAX) {
        assert!(ordered.windows(2).all(|pair| !pair[1].is_before(&pair[0])));
    }
}

fn strangers_are_named(recipe: Recipe, children: &[String], mine: Option<&Ticket>, data: &[u8]) {
    match check_neighbours("lock", Some(recipe), children) {
        Ok(()) => {}
        Err(Error::UnsafeMix { node, .. }) => {
            assert!(children.contains(&node) && Ticket::parse(&node).is_some());
        }
        Err(other) => panic!("{other}"),
    }
    let ours = [Ticket::ours(recipe, 7).name, "notes".to_owned()];
    assert!(check_neighbours("lock", Some(recipe), &ours).is_ok());

    let doubts = in_doubt(Some(recipe), children, mine);
    assert!(doubts.len() <= 34, "each is read");
    for doubt in doubts {
        assert!(children.contains(&doubt.node));
        let is_below =
            !matches!(&*doubt.node, HELD | LIMIT) && Ticket::parse(&doubt.node).is_none();
        let persistent = doubt.check_node("lock", data, 0);
        assert!(persistent.is_ok() || !is_below && doubt.node != HELD);
        assert!(
            doubt.check_children("lock", children).is_ok()
                || children
                    .iter()
                    .any(|child| permits::weight(child).is_some())
        );
    }
}

fn permits_are_counted(children: &[String], data: &[u8]) {
    let names = || children.iter().map(String::as_str);
    for child in names() {
        let Some(weight) = permits::weight(child) else {
            continue;
        };
        let start = permits::start_of(weight);
        assert!(weight > 0 && child.starts_with(&start) && child.len() > start.len());
    }
    let number = |byte: Option<&u8>| byte.map_or(1, |byte| 1 + u32::from(*byte));
    let (asked, limit, held) = (
        number(data.first()),
        number(data.last()),
        permits::held(names()),
    );
    let fits = held + u64::from(asked) <= u64::from(limit);
    let expected = match (asked <= limit, fits) {
        (false, _) => PermitVerdict::Never,
        (true, true) => PermitVerdict::Fits,
        (true, false) => PermitVerdict::Full,
    };
    assert_eq!(permits::judge(names(), asked, limit), expected);
    assert_eq!(
        u64::from(permits::left(names(), limit)),
        u64::from(limit).saturating_sub(held)
    );
}

/// What stands in nodes: the lines of tickets, what is left in directories, limits.
pub fn lines(data: &[u8]) {
    let line = TicketData::parse(data);
    if let Some(line) = &line {
        assert_eq!(TicketData::parse(&line.to_bytes()).as_ref(), Some(line));
    }
    assert_eq!(TicketData::of_ours(data).revoked, is_revoked(data));
    let asked = asking(data);
    assert!(is_revoked(&asked));
    let attempt = |data: &[u8]| TicketData::parse(data).map(|line| line.attempt);
    assert_eq!(attempt(data), attempt(&asked), "it is known again");

    let directory = DirectoryData::parse(data);
    let again = match &directory {
        DirectoryData::Empty => Some(Vec::new()),
        DirectoryData::Marked(mark) => Some(mark.to_bytes()),
        DirectoryData::Noted(token) => Some(DirectoryData::note(*token)),
        DirectoryData::Proclaimed(said) => {
            Some(DirectoryData::proclamation(said.czxid, &said.value))
        }
        DirectoryData::Foreign => None,
    };
    assert_eq!(directory.is_ours(), again.is_some());
    if let Some(again) = again {
        assert_eq!(DirectoryData::parse(&again), directory);
        assert!(line.is_none(), "no ticket's line proves a release");
    }
    if let Some(limit) = permits::parse_limit(data) {
        assert_eq!(permits::limit_to_bytes(limit), data);
        assert!(limit > 0);
    }
}

/// Lock names, as they are given and as they are escaped.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = LockName::new(&text) {
        assert_eq!(name.as_str(), text);
        assert_eq!(name.to_string().parse().ok().as_ref(), Some(&name));
        assert!(
            server::is_path(&format!("/locks/{name}")),
            "the server takes it"
        );
        assert!(
            name.as_str()
                .split('/')
                .all(|segment| Ticket::parse(segment).is_none())
        );
        if !text.contains(['/', '%']) {
            assert_eq!(
                LockName::escape(&text),
                name,
                "what is legal stays as it is"
            );
        }
    }

    let escaped = LockName::escape(&text);
    assert_eq!(
        LockName::new(escaped.as_str()).ok().as_ref(),
        Some(&escaped)
    );
    assert!(!escaped.as_str().contains('/'));
    match unescaped(escaped.as_str()) {
        // Whatever can be read back is different for different strings.
        Some(original) => assert_eq!(original, text.as_bytes()),
        None => {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
            assert!(escaped.as_str().ends_with(&format!("%-{hash}")));
            assert!(text.len() > 255 / 3, "what is short is written out");
        }
    }
}

/// The string that was escaped; `None` if only its hash is there.
fn unescaped(escaped: &str) -> Option<Vec<u8>> {
    if escaped == "%" {
        return Some(Vec::new());
    }
    let mut pieces = escaped.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    Some(bytes)
}

/// Connect strings: what is let through, the client crate reads as we do.
pub fn connect(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = |text: &str| Keeper::builder(text).zookeeper();
    let target = match read(&text) {
        Ok(target) => target,
        Err(error) => return assert!(error.is_invalid(), "{error}"),
    };
    let (servers, chroot) = (&target.servers, &target.chroot);
    let whole = format!("{servers}{chroot}");
    assert!(whole == text.trim() || format!("{whole}/") == text.trim());
    let again = read(&whole).map(|again| (again.servers, again.chroot));
    assert_eq!(again.ok(), Some((servers.clone(), chroot.clone())));
    assert!(chroot.is_empty() || server::is_path(chroot));

    // The link puts its pacer behind the servers, and the chroot behind that.
    let list = format!("{servers},127.0.0.1:1{chroot}");
    let Some((theirs, root)) = as_the_client_crate_does(&list) else {
        panic!("the client crate refuses {list:?}");
    };
    assert_eq!(root, chroot);
    let ours: Vec<_> = servers.split(',').map(endpoint).collect();
    assert_eq!(
        theirs.split_last().map(|(_, servers)| servers),
        Some(&ours[..])
    );
}

/// As we look for a server when it gives no session.
fn endpoint(server: &str) -> (String, u16) {
    let with_port = with_port(server, 2181);
    let (host, port) = with_port.rsplit_once(':').unwrap_or_default();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    (
        bare.unwrap_or(host).to_owned(),
        port.parse().unwrap_or_default(),
    )
}

/// The servers and the chroot, by the rules of the client crate (its `endpoint.rs`).
fn as_the_client_crate_does(list: &str) -> Option<(Vec<(String, u16)>, &str)> {
    let (mut endpoints, mut chroot) = (Vec::new(), None);
    for mut server in list.rsplit(',') {
        if server.is_empty() || server.starts_with("tcp://") || server.starts_with("tcp+tls://") {
            return None;
        }
        if chroot.is_none() {
            let at = server.find('/').unwrap_or(server.len());
            chroot = Some(&server[at..]);
            server = &server[..at];
        }
        let (host, port) = if let Some(rest) = server.strip_prefix('[') {
            let (host, port) = rest.rsplit_once(']')?;
            (
                host,
                if port.is_empty() {
                    ""
                } else {
                    port.strip_prefix(':')?
                },
            )
        } else {
            server.rsplit_once(':').unwrap_or((server, ""))
        };
        let port = if port.is_empty() {
            2181
        } else {
            port.parse().ok()?
        };
        if host.is_empty() || port == 0 {
            return None;
        }
        endpoints.push((host.to_owned(), port));
    }
    endpoints.reverse();
    Some((endpoints, chroot?))
}

/// Access lists.
pub fn access(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let list: Acl = match text.parse() {
        Ok(list) => list,
        Err(Error::InvalidOption { what, .. }) => return assert_eq!(what, "access list"),
        Err(other) => panic!("{other}"),
    };
    assert!(!list.entries().is_empty());
    assert!(
        list.entries()
            .iter()
            .all(|entry| (1..=31).contains(&entry.rights) && !entry.scheme.is_empty())
    );
    let shown = list.to_string();
    assert_eq!(shown.parse().ok().as_ref(), Some(&list));
    // The letters may have stood in another order, or twice. Two words stand for whole lists.
    let is_word = matches!(&*text, "open" | "creator");
    assert!(is_word || shown.len() <= text.len());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::Path;

    use super::*;

    type Target = fn(&[u8]);

    #[test]
    fn what_is_in_the_corpus_keeps_its_claims() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let recipes: [(&str, Target); 7] = [
            ("codec", codec),
            ("conversation", conversation),
            ("directory", directory),
            ("lines", lines),
            ("names", names),
            ("connect", connect),
            ("access", access),
        ];
        for (target, recipe) in recipes {
            let mut seeds = 0;
            for seed in fs::read_dir(corpus.join(target)).unwrap() {
                let path = seed.unwrap().path();
                let data = fs::read(&path).unwrap();
                assert!(catch_unwind(|| recipe(&data)).is_ok(), "{path:?}");
                seeds += 1;
            }
            assert!(seeds >= 8, "{target}: {seeds} seeds");
        }
    }
}
