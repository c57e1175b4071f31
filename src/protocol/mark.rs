//! What is written into a lock directory, and how a ticket leaves. (pure)
//!
//! A holder leaves a *mark* when it releases; a guest leaves a *note* when it comes, so that its
//! host leaves without a mark; a leader *proclaims* a value. Invariant: a mark proves a turn only
//! by the `czxid` of the ticket that was watched. By number alone it would prove a wrong one as
//! soon as a directory was removed and made again (docs/failures.md row 74).
//!
//! The host's mark commits only at the directory's version of its grant, and each guest raises
//! that version by its note. A host that is granted when guests are there already leaves
//! without a mark, too. So no waiter is called in beside a guest. A shared ticket leaves
//! without a mark, by a check of the directory's version: no exclusive hold can have changed it
//! meanwhile.

use serde::{Deserialize, Serialize};

/// Says that the ticket with this identity was granted and then released: everything before it had
/// gone already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) czxid: i64,
    pub(crate) seq: i32,
}

/// How a ticket leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReleasePlan {
    /// By its name alone, which is read first: it never held.
    Plain,
    /// Only while the directory is still at this version, and without a word: it shared, or had
    /// guests, or the directory's data is another program's.
    Unmarked { version: i32 },
    /// With the mark of a holder, written only while the directory is still at this version.
    Marked { mark: Vec<u8>, version: i32 },
    /// Together with its directory if it is the last one in there, so that numbers start again;
    /// otherwise as inside.
    LastOut(Box<Self>),
}

impl ReleasePlan {
    /// The same without the mark.
    pub(crate) fn unmarked(self) -> Self {
        match self {
            Self::Marked { version, .. } => Self::Unmarked { version },
            Self::LastOut(inside) => Self::LastOut(Box::new(inside.unmarked())),
            Self::Plain | Self::Unmarked { .. } => self,
        }
    }

    /// What is left to try when the server refuses this one.
    pub(crate) fn plainer(self) -> Self {
        match self {
            Self::LastOut(inside) => *inside,
            Self::Marked { .. } | Self::Unmarked { .. } | Self::Plain => Self::Plain,
        }
    }

    /// The version of the directory, whose data was then ours to write over, at which the mark is
    /// left.
    pub(crate) fn marks_at(&self) -> Option<i32> {
        match self {
            Self::Marked { version, .. } => Some(*version),
            Self::LastOut(inside) => inside.marks_at(),
            Self::Plain | Self::Unmarked { .. } => None,
        }
    }

    /// The same one after writes of our own have brought the directory to this version.
    pub(crate) fn at(self, version: i32) -> Self {
        match self {
            Self::Plain => Self::Plain,
            Self::Unmarked { .. } => Self::Unmarked { version },
            Self::Marked { mark, .. } => Self::Marked { mark, version },
            Self::LastOut(inside) => Self::LastOut(Box::new(inside.at(version))),
        }
    }
}

/// The value of a leader, and the identity of its ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proclaimed {
    pub(crate) czxid: i64,
    pub(crate) value: String,
}

/// What stands in a lock directory's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectoryData {
    /// Nothing yet: we may write.
    Empty,
    /// The mark of the last release: we may write.
    Marked(Mark),
    /// A guest has come to the hold with this token: we may write.
    Noted(i64),
    /// A leader has published a value: we may write.
    Proclaimed(Proclaimed),
    /// Another program's value: we must never write over it (docs/failures.md row 85).
    Foreign,
}

#[derive(Serialize, Deserialize)]
enum MarkLine {
    #[serde(rename = "lockkeeper_released")]
    Released(Mark),
    #[serde(rename = "lockkeeper_guest_of")]
    GuestOf(i64),
    #[serde(rename = "lockkeeper_proclaimed")]
    Proclaimed(Proclaimed),
}

impl MarkLine {
    fn to_bytes(&self) -> Vec<u8> {
        // Numbers and text: serde_json cannot fail on them, and an empty line proves nothing, which
        // is safe.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Mark {
    /// The bytes for the directory.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        MarkLine::Released(self).to_bytes()
    }
}

impl DirectoryData {
    /// Reads any bytes.
    pub(crate) fn parse(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self::Empty;
        }
        match serde_json::from_slice::<MarkLine>(data) {
            Ok(MarkLine::Released(mark)) => Self::Marked(mark),
            Ok(MarkLine::GuestOf(token)) => Self::Noted(token),
            Ok(MarkLine::Proclaimed(proclaimed)) => Self::Proclaimed(proclaimed),
            Err(_) => Self::Foreign,
        }
    }

    /// The bytes that tell of a guest of the hold with this token.
    pub(crate) fn note(token: i64) -> Vec<u8> {
        MarkLine::GuestOf(token).to_bytes()
    }

    /// The bytes that publish a leader's value.
    pub(crate) fn proclamation(czxid: i64, value: &str) -> Vec<u8> {
        let value = value.to_owned();
        MarkLine::Proclaimed(Proclaimed { czxid, value }).to_bytes()
    }

    /// Whether this proves that the ticket with that identity held the lock and released it.
    pub(crate) fn proves_release_of(&self, czxid: i64) -> bool {
        matches!(self, Self::Marked(mark) if mark.czxid == czxid)
    }

    /// Whether the ticket before the one with this number was held and released, or there never was
    /// one. Its identity decides if it is known. A directory that is removed when it is empty
    /// forgets its former tickets.
    pub(crate) fn ended_well(&self, ahead: Option<i64>, seq: i32, forgets: bool) -> bool {
        match (self, ahead) {
            (Self::Marked(mark), Some(czxid)) => mark.czxid == czxid,
            (Self::Marked(mark), None) => mark.seq.checked_add(1) == Some(seq),
            (Self::Empty, None) => seq == 0 && !forgets,
            (Self::Empty, Some(_)) | (Self::Foreign | Self::Noted(_) | Self::Proclaimed(_), _) => {
                false
            }
        }
    }

    /// Whether a release may write its mark here.
    pub(crate) fn is_ours(&self) -> bool {
        *self != Self::Foreign
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_exit_follows_the_directory_and_stays_what_it_is() {
        let marked = |version| ReleasePlan::Marked {
            mark: vec![7],
            version,
        };
        let last = |version| ReleasePlan::LastOut(Box::new(marked(version)));

        assert_eq!(marked(1).at(2), marked(2));
        assert_eq!(last(1).at(2), last(2));
        assert_eq!(
            ReleasePlan::Unmarked { version: 1 }.at(2),
            ReleasePlan::Unmarked { version: 2 }
        );
        assert_eq!(ReleasePlan::Plain.at(2), ReleasePlan::Plain);
        let each = [
            marked(3),
            last(3),
            ReleasePlan::Unmarked { version: 3 },
            ReleasePlan::Plain,
        ];
        assert_eq!(
            each.map(|plan| plan.marks_at()),
            [Some(3), Some(3), None, None]
        );
    }

    /// `docs/versions.md` promises it to those who run another version in the same queue.
    #[test]
    fn what_is_written_into_directories_stays_the_same() {
        let mark = Mark { czxid: 7, seq: 3 };

        assert_eq!(
            mark.to_bytes(),
            br#"{"lockkeeper_released":{"czxid":7,"seq":3}}"#
        );
        assert_eq!(DirectoryData::note(7), br#"{"lockkeeper_guest_of":7}"#);
        assert_eq!(
            DirectoryData::proclamation(7, "v"),
            br#"{"lockkeeper_proclaimed":{"czxid":7,"value":"v"}}"#
        );
    }

    #[test]
    fn foreign_data_is_not_ours() {
        for data in [
            &b"5"[..],
            b"{}",
            b"10.0.0.7",
            b"{\"lockkeeper_released\":{}}",
            &[0xff],
        ] {
            assert_eq!(DirectoryData::parse(data), DirectoryData::Foreign);
        }
        assert!(DirectoryData::parse(b"").is_ours());
    }

    #[test]
    fn nobody_is_taken_to_have_ended_well_without_a_sign_of_it() {
        let marked = DirectoryData::Marked(Mark { czxid: 7, seq: 3 });

        assert!(marked.ended_well(Some(7), 9, true));
        assert!(!marked.ended_well(Some(8), 4, true));
        assert!(marked.ended_well(None, 4, true));
        assert!(!marked.ended_well(None, 5, true));
        assert!(DirectoryData::Empty.ended_well(None, 0, false));
        assert!(!DirectoryData::Empty.ended_well(None, 0, true));
        assert!(!DirectoryData::Empty.ended_well(None, 1, false));
        assert!(!DirectoryData::Empty.ended_well(Some(7), 0, false));
        assert!(!DirectoryData::Foreign.ended_well(None, 0, false));
    }

    proptest! {
        #[test]
        fn a_mark_survives_the_wire_and_proves_its_own_ticket_only(czxid: i64, seq: i32, other: i64) {
            let read = DirectoryData::parse(&Mark { czxid, seq }.to_bytes());

            prop_assert_eq!(&read, &DirectoryData::Marked(Mark { czxid, seq }));
            prop_assert!(read.proves_release_of(czxid));
            prop_assert_eq!(read.proves_release_of(other), other == czxid);
        }

        #[test]
        fn any_bytes_are_read(data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ignored = DirectoryData::parse(&data);
        }
    }
}
