//! The byte layer: frames with a length in front, and the primitives inside them (jute's binary
//! form).
//! Invariant: no input panics, and nothing is allocated for an announced length or count until its
//! bytes have arrived. It does not know requests or replies.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Input that a correct client never sends. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Takes one whole frame off the front of `buffer`, without its length; `None` until all of it has
/// arrived.
pub(super) fn take_frame(
    buffer: &mut BytesMut,
    max_frame: usize,
) -> Result<Option<Bytes>, Malformed> {
    let Some(head) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*head))
        .map_err(|_| Malformed("negative frame length"))?;
    if length > max_frame {
        return Err(Malformed("frame above the limit"));
    }
    if buffer.len() - 4 < length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Reads primitives off the front of one frame.
#[derive(Debug)]
pub(super) struct Input(Bytes);

impl Input {
    pub(super) fn new(frame: Bytes) -> Self {
        Self(frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All the remaining bytes.
    pub(super) fn rest(&mut self) -> Bytes {
        self.0.split_off(0)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.0.try_get_i32().map_err(|_| Malformed("truncated int"))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.0
            .try_get_i64()
            .map_err(|_| Malformed("truncated long"))
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        let byte = self
            .0
            .try_get_u8()
            .map_err(|_| Malformed("truncated boolean"))?;
        Ok(byte != 0)
    }

    /// A buffer; `None` is the protocol's null (length -1).
    pub(super) fn buffer(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("negative buffer length"))?;
        if length > self.0.len() {
            return Err(Malformed("buffer longer than its frame"));
        }
        Ok(Some(self.0.split_to(length)))
    }

    /// A string. Bytes that are not UTF-8 become U+FFFD, as in Java, and later fail the path rules.
    pub(super) fn string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self
            .buffer()?
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// A vector; `None` is null. An element takes at least four bytes, so a higher count is
    /// refused.
    pub(super) fn vector<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let Ok(count) = usize::try_from(self.i32()?) else {
            return Ok(None);
        };
        if count > self.0.len() / 4 {
            return Err(Malformed("vector longer than its frame"));
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }
}

/// Writes primitives into one frame; [`Output::finish`] fills in the length.
#[derive(Debug)]
pub(super) struct Output(BytesMut);

impl Output {
    pub(super) fn frame() -> Self {
        let mut bytes = BytesMut::with_capacity(128);
        bytes.put_i32(0);
        Self(bytes)
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.put_i32(value);
        self
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.put_i64(value);
        self
    }

    pub(super) fn bool(&mut self, value: bool) -> &mut Self {
        self.0.put_u8(u8::from(value));
        self
    }

    pub(super) fn buffer(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(bytes) => {
                self.0.put_i32(length_of(bytes.len()));
                self.0.put_slice(bytes);
            }
            None => self.0.put_i32(-1),
        }
        self
    }

    /// A string. As in ZooKeeper, a character beyond the basic plane is written as two surrogates,
    /// each encoded like a character.
    pub(super) fn string(&mut self, value: &str) -> &mut Self {
        if value.chars().all(|character| character.len_utf8() < 4) {
            return self.buffer(Some(value.as_bytes()));
        }
        let mut bytes = Vec::with_capacity(value.len() * 3 / 2);
        for character in value.chars() {
            let mut units = [0; 2];
            match character.encode_utf16(&mut units) {
                [high, low] => {
                    for unit in [*high, *low] {
                        let continued = |bits: u16| 0x80 | (bits & 0x3f) as u8;
                        bytes.extend([
                            0xe0 | (unit >> 12) as u8,
                            continued(unit >> 6),
                            continued(unit),
                        ]);
                    }
                }
                _ => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.buffer(Some(&bytes))
    }

    pub(super) fn count(&mut self, value: usize) -> &mut Self {
        self.i32(length_of(value))
    }

    pub(super) fn finish(mut self) -> Bytes {
        let length = length_of(self.0.len().saturating_sub(4));
        if let Some(head) = self.0.first_chunk_mut::<4>() {
            *head = length.to_be_bytes();
        }
        self.0.freeze()
    }
}

/// No stored value is longer than `i32`, since each arrived in a frame. Saturating avoids a panic.
fn length_of(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_taken_only_when_whole() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 2, 7][..]);

        assert_eq!(take_frame(&mut buffer, 10), Ok(None));
        buffer.put_u8(8);
        assert_eq!(
            take_frame(&mut buffer, 10),
            Ok(Some(Bytes::from_static(&[7, 8])))
        );
        assert!(buffer.is_empty());
    }

    #[test]
    fn bad_lengths_are_refused_before_their_bytes_arrive() {
        let negative = take_frame(&mut BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..]), 10);
        let oversize = take_frame(&mut BytesMut::from(&[0, 0, 0, 11][..]), 10);

        assert!(negative.is_err());
        assert!(oversize.is_err());
    }

    #[test]
    fn a_character_beyond_the_basic_plane_is_written_as_two_surrogates() {
        let mut output = Output::frame();
        output.string("a\u{1f600}");

        assert_eq!(output.finish()[8..], *b"a\xed\xa0\xbd\xed\xb8\x80");
    }

    #[test]
    fn absurd_counts_are_refused() {
        let mut vector = Input::new(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
        let mut buffer = Input::new(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0]));

        assert!(vector.vector(Input::i32).is_err());
        assert!(buffer.buffer().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            int in any::<i32>(), long in any::<i64>(), flag in any::<bool>(),
            text in "[\\x00-\\u{ffff}]*", bytes in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
        ) {
            let mut output = Output::frame();
            output.i32(int).i64(long).bool(flag).string(&text).buffer(bytes.as_deref());
            let mut stream = BytesMut::from(&output.finish()[..]);

            let mut input = Input::new(take_frame(&mut stream, usize::MAX).unwrap().unwrap());

            prop_assert_eq!(input.i32().unwrap(), int);
            prop_assert_eq!(input.i64().unwrap(), long);
            prop_assert_eq!(input.bool().unwrap(), flag);
            prop_assert_eq!(input.string().unwrap().unwrap(), text);
            prop_assert_eq!(input.buffer().unwrap().map(|b| b.to_vec()), bytes);
            prop_assert!(input.is_empty());
        }
    }
}
