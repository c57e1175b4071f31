//! A watch in a small world of its own: whatever happens between its questions, it shows what was
//! true, in order, and in the end what is.

use proptest::prelude::*;

use crate::protocol::leader::*;
use crate::protocol::ticket::Recipe;

/// A server with one lock directory, and what the watch watches there.
#[derive(Debug, Default)]
struct Place {
    zxid: i64,
    directory: Option<Node>,
    /// Watches that are armed, and those that have fired and were not told yet.
    armed: Vec<What>,
    fired: Vec<(What, Change)>,
}

#[derive(Debug)]
struct Node {
    czxid: i64,
    data: Vec<u8>,
    next: i32,
    tickets: Vec<(Ticket, i64, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    LeaderDirectory,
    Ticket(i32),
    Children,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Deleted,
    Changed,
}

/// What others do.
#[derive(Debug, Clone)]
enum Deed {
    Stand,
    /// The one at this place in the queue goes, with a mark if it led.
    Leave(usize),
    Proclaim(u8),
    Overwrite(Vec<u8>),
    /// The ticket at this place is rewritten.
    Deface(usize),
    Reap,
    /// Nobody does anything: the watch has the word.
    Pause,
}

impl Place {
    fn fire(&mut self, what: What, change: Change) {
        if let Some(at) = self.armed.iter().position(|armed| *armed == what) {
            self.armed.swap_remove(at);
            self.fired.push((what, change));
        }
    }

    fn ensure(&mut self) -> &mut Node {
        self.zxid += 1;
        let czxid = self.zxid;
        self.directory.get_or_insert_with(|| Node {
            czxid,
            data: Vec::new(),
            next: 0,
            tickets: Vec::new(),
        })
    }

    fn write(&mut self, data: Vec<u8>) {
        if let Some(directory) = &mut self.directory {
            directory.data = data;
            self.fire(What::LeaderDirectory, Change::Changed);
        }
    }

    fn does(&mut self, deed: &Deed) {
        match deed {
            Deed::Stand => {
                let directory = self.ensure();
                let ticket = Ticket::ours(Recipe::Lead, directory.next);
                directory.next += 1;
                let line = TicketData {
                    value: Some("stood".into()),
                    attempt: uuid::Uuid::from_u128(7),
                    ..TicketData::default()
                };
                self.zxid += 1;
                let zxid = self.zxid;
                if let Some(directory) = &mut self.directory {
                    directory.tickets.push((ticket, zxid, line.to_bytes()));
                }
                self.fire(What::Children, Change::Changed);
            }
            Deed::Leave(at) => {
                let count = self.directory.as_ref().map_or(0, |it| it.tickets.len());
                if count == 0 {
                    return;
                }
                let at = at % count;
                if at == 0 {
                    self.write(b"{\"lockkeeper_released\":{\"czxid\":1,\"seq\":1}}".to_vec());
                }
                if let Some(directory) = &mut self.directory {
                    let (ticket, ..) = directory.tickets.remove(at);
                    self.fire(What::Ticket(ticket.seq), Change::Deleted);
                    self.fire(What::Children, Change::Changed);
                }
            }
            Deed::Proclaim(value) => {
                let first = self.directory.as_ref().and_then(|it| it.tickets.first());
                if let Some((_, czxid, _)) = first {
                    let said = DirectoryData::proclamation(*czxid, &value.to_string());
                    self.write(said);
                }
            }
            Deed::Overwrite(data) => self.write(data.clone()),
            Deed::Deface(at) => {
                if let Some(directory) = &mut self.directory {
                    let count = directory.tickets.len().max(1);
                    if let Some((ticket, _, data)) = directory.tickets.get_mut(at % count) {
                        *data = b"__REVOKE__".to_vec();
                        let seq = ticket.seq;
                        self.fire(What::Ticket(seq), Change::Changed);
                    }
                }
            }
            Deed::Reap => {
                let is_empty = |it: &Node| it.tickets.is_empty();
                if self.directory.as_ref().is_some_and(is_empty) {
                    self.directory = None;
                    self.fire(What::LeaderDirectory, Change::Deleted);
                    self.fire(What::Children, Change::Deleted);
                }
            }
            Deed::Pause => {}
        }
    }

    fn leader(&self) -> Option<Leader> {
        let directory = self.directory.as_ref()?;
        let (ticket, czxid, data) = directory.tickets.first()?;
        Some(Leader::of(ticket, (*czxid, 7, data), &directory.data))
    }
}

fn names(node: &Node) -> Vec<String> {
    let tickets = node.tickets.iter();
    tickets.map(|(ticket, ..)| ticket.name.clone()).collect()
}

/// One step of the watch; false if it waits for what does not come.
fn goes_on(watch: &mut LeaderWatch, place: &mut Place) -> bool {
    let step = watch.step();
    if step == LeaderStep::Wait {
        if place.fired.is_empty() {
            return false;
        }
        match place.fired.remove(0) {
            (What::LeaderDirectory, Change::Changed) => watch.directory_changed(),
            (What::LeaderDirectory, Change::Deleted) => {
                (place.armed, place.fired) = (Vec::new(), Vec::new());
                watch.start_over();
            }
            (What::Ticket(_) | What::Children, _) => watch.first_changed(),
        }
        return true;
    }
    // As the observer does: what it does not watch for any more it does not hear.
    let forget_first = |place: &mut Place| {
        place.armed.retain(|what| *what == What::LeaderDirectory);
        place
            .fired
            .retain(|(what, _)| *what == What::LeaderDirectory);
    };
    let forget_directory = |place: &mut Place| {
        place.armed.retain(|what| *what != What::LeaderDirectory);
        place
            .fired
            .retain(|(what, _)| *what != What::LeaderDirectory);
    };
    if step == LeaderStep::Make {
        place.ensure();
        watch.start_over();
        return true;
    }
    let Some(node) = &place.directory else {
        forget_first(place);
        forget_directory(place);
        watch.directory_missing();
        return true;
    };
    match step {
        LeaderStep::Make | LeaderStep::Wait => {}
        LeaderStep::WatchDirectory => {
            let czxid = node.czxid;
            forget_directory(place);
            place.armed.push(What::LeaderDirectory);
            watch.directory_watched(czxid);
        }
        LeaderStep::List => {
            let (czxid, names) = (node.czxid, names(node));
            watch.listed(czxid, names.iter().map(String::as_str));
        }
        LeaderStep::WatchChildren => {
            let names = names(node);
            forget_first(place);
            if watch.children_watched(names.iter().map(String::as_str)) {
                place.armed.push(What::Children);
            }
        }
        LeaderStep::WatchTicket(ticket) => {
            let there = node.tickets.iter().find(|(it, ..)| it == ticket);
            match there.map(|(it, czxid, _)| (it.seq, *czxid)) {
                Some((seq, czxid)) => {
                    forget_first(place);
                    place.armed.push(What::Ticket(seq));
                    watch.ticket_watched(czxid);
                }
                None => watch.first_changed(),
            }
        }
        LeaderStep::Read(ticket) => {
            let there = node.tickets.iter().find(|(it, ..)| it == ticket);
            let found = there.map(|(_, czxid, data)| (*czxid, 7, &data[..]));
            if !watch.read(node.czxid, &node.data, found) {
                forget_first(place);
            }
        }
    }
    true
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => Just(Deed::Stand),
        3 => (0..3_usize).prop_map(Deed::Leave),
        2 => any::<u8>().prop_map(Deed::Proclaim),
        1 => Just(Deed::Overwrite(Vec::new())),
        1 => Just(Deed::Overwrite(b"10.0.0.7".to_vec())),
        1 => (0..3_usize).prop_map(Deed::Deface),
        2 => Just(Deed::Reap),
        6 => Just(Deed::Pause),
    ];
    prop::collection::vec(deed, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_shown_was_true_and_comes_in_order_and_is_true_in_the_end(deeds in deeds()) {
        let (mut watch, mut place) = (LeaderWatch::default(), Place::default());
        let (mut shown, mut highest) = (None, None);
        for deed in deeds.iter().map(Some).chain(std::iter::repeat_n(None, 60)) {
            match deed {
                Some(Deed::Pause) | None => {
                    goes_on(&mut watch, &mut place);
                }
                Some(deed) => place.does(deed),
            }
            if watch.take_news() {
                let leader = watch.leader().cloned();
                prop_assert_ne!(&leader, &shown, "each is shown once");
                prop_assert_eq!(&leader, &place.leader(), "it is true when it is shown");
                let token = leader.as_ref().map(|leader| leader.token);
                prop_assert!(token.is_none() || token >= highest, "tokens grow");
                highest = token.max(highest);
                shown = leader;
            }
        }

        prop_assert_eq!(watch.step(), LeaderStep::Wait);
        prop_assert_eq!(watch.leader().cloned(), place.leader());
        prop_assert!(place.directory.is_some(), "what it watches is there");
    }
}

#[test]
fn a_hand_over_takes_few_questions() {
    let (mut watch, mut place) = (LeaderWatch::default(), Place::default());
    place.does(&Deed::Stand);
    place.does(&Deed::Stand);
    while goes_on(&mut watch, &mut place) {}
    assert!(watch.take_news());
    let mut count = |deed: &Deed| {
        place.does(deed);
        let mut questions = 0;
        while goes_on(&mut watch, &mut place) {
            questions += usize::from(watch.step() != LeaderStep::Wait);
        }
        questions
    };

    // A watch and a read.
    assert_eq!(count(&Deed::Proclaim(1)), 2);
    // The directory's watch, a read of who is gone, a list, the next one's watch and a read.
    assert_eq!(count(&Deed::Leave(0)), 5);
    // Whoever stands behind the leader is of no interest.
    assert_eq!(count(&Deed::Stand), 0);
}
