//! The release mark: what a holder leaves in the directory's data when it releases. (pure)
//!
//! Invariant: a mark proves a turn only by the `czxid` of the ticket that was watched. By number alone it would prove a
//! wrong one as soon as a directory was removed and made again (FAILURES.md row 74).

use serde::{Deserialize, Serialize};

/// Says that the ticket with this identity was granted and then released: everything before it had gone already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) czxid: i64,
    pub(crate) seq: i32,
}

/// What stands in a lock directory's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryData {
    /// Nothing yet: we may write.
    Empty,
    /// The mark of the last release: we may write.
    Marked(Mark),
    /// Another program's value: we must never write over it (FAILURES.md row 85).
    Foreign,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    lockkeeper_released: Mark,
}

impl Mark {
    /// The bytes for the directory.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        // Two numbers: serde_json cannot fail on them, and an empty mark proves nothing, which is safe.
        serde_json::to_vec(&Line {
            lockkeeper_released: self,
        })
        .unwrap_or_default()
    }
}

impl DirectoryData {
    /// Reads any bytes.
    pub(crate) fn parse(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self::Empty;
        }
        match serde_json::from_slice::<Line>(data) {
            Ok(line) => Self::Marked(line.lockkeeper_released),
            Err(_) => Self::Foreign,
        }
    }

    /// Whether this proves that the ticket with that identity held the lock and released it.
    pub(crate) fn proves_release_of(self, czxid: i64) -> bool {
        matches!(self, Self::Marked(mark) if mark.czxid == czxid)
    }

    /// Whether whoever stood before the ticket with this number held and released, or nobody ever did. Their identity decides if
    /// it is known. A directory that is removed when it is empty forgets what was in it before.
    pub(crate) fn ended_well(self, ahead: Option<i64>, seq: i32, forgets: bool) -> bool {
        match (self, ahead) {
            (Self::Marked(mark), Some(czxid)) => mark.czxid == czxid,
            (Self::Marked(mark), None) => mark.seq.checked_add(1) == Some(seq),
            (Self::Empty, None) => seq == 0 && !forgets,
            (Self::Empty, Some(_)) | (Self::Foreign, _) => false,
        }
    }

    /// Whether a release may write its mark here.
    pub(crate) fn is_ours(self) -> bool {
        self != Self::Foreign
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

            prop_assert_eq!(read, DirectoryData::Marked(Mark { czxid, seq }));
            prop_assert!(read.proves_release_of(czxid));
            prop_assert_eq!(read.proves_release_of(other), other == czxid);
        }

        #[test]
        fn any_bytes_are_read(data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ignored = DirectoryData::parse(&data);
        }
    }
}
