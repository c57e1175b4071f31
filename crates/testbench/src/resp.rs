//! The parts of Redis's protocol that show which reply answers which request. (pure)
//!
//! Replies have no number and come in the order of their requests. Messages stand between them.

use super::frames::Operation;

/// The length of the frame at the front, when all of it is there.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let rest = line + 2;
    let count = || {
        let number = std::str::from_utf8(&bytes[1..line]).expect("a length is text");
        usize::try_from(number.parse::<i64>().expect("a length is a number")).ok()
    };
    let elements = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = count().map_or(rest, |length| rest + length + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => count().unwrap_or(0),
        b'%' => 2 * count().unwrap_or(0),
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => 0,
        other => panic!("no frame begins with {:?}", char::from(other)),
    };
    (0..elements).try_fold(rest, |at, _| Some(at + length(&bytes[at..])?))
}

/// Takes one whole frame off the front; None until all of it has arrived.
pub fn take(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = length(buffer)?;
    Some(buffer.drain(..length).collect())
}

/// Whether a frame of the server is no reply.
pub fn is_message(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

/// Whether a request is answered by a reply. A subscription is answered by a message.
pub fn is_answered(request: &[u8]) -> bool {
    words(request)
        .first()
        .is_none_or(|word| *word != b"SUBSCRIBE")
}

/// What a request asks of the script of the link: the operation, then its arguments. Nothing for
/// other requests.
pub fn asks(request: &[u8]) -> Option<Vec<&[u8]>> {
    let words = words(request);
    if words.first() != Some(&&b"EVALSHA"[..]) {
        return None;
    }
    let keys: usize = std::str::from_utf8(words.get(2)?).ok()?.parse().ok()?;
    // The incarnation, the session, its secret and its connection come first.
    words.get(3 + keys + 4..).map(<[_]>::to_vec)
}

/// The session that a request is of, and which of its connections it is.
pub fn session(request: &[u8]) -> Option<(i64, i64)> {
    let words = words(request);
    asks(request)?;
    let keys: usize = std::str::from_utf8(words[2]).ok()?.parse().ok()?;
    let number = |at: usize| {
        std::str::from_utf8(words.get(3 + keys + at)?)
            .ok()?
            .parse()
            .ok()
    };
    Some((number(1)?, number(3)?))
}

/// Whether it keeps the session alive, or belongs to the connection.
pub fn is_upkeep(request: &[u8]) -> bool {
    asks(request).is_none_or(|asks| matches!(asks.first(), Some(&(b"touch" | b"open" | b"rearm"))))
}

/// What ZooKeeper's protocol calls a request of the link.
pub fn operation(request: &[u8]) -> Option<Operation> {
    let asks = asks(request)?;
    let [operation, rest @ ..] = &asks[..] else {
        return None;
    };
    Some(match (*operation, rest.first().copied(), rest.len()) {
        (b"multi", Some(b"sequential" | b"ephemeral" | b"create" | b"container"), 5) => {
            Operation::CREATE
        }
        (b"multi", Some(b"delete"), 5) => Operation::DELETE,
        (b"multi", Some(b"set"), 5) => Operation::SET_DATA,
        (b"multi", ..) => Operation::MULTI,
        (b"read", ..) => Operation::MULTI_READ,
        (b"watch", Some(b"c"), _) => Operation::GET_CHILDREN,
        (b"watch", ..) => Operation::GET_DATA,
        (b"touch", ..) => Operation::SYNC,
        (b"close", ..) => Operation::CLOSE_SESSION,
        _ => return None,
    })
}

/// The words of a request, which is an array of strings.
fn words(request: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let Some(line) = request.windows(2).position(|two| two == b"\r\n") else {
        return words;
    };
    let mut rest = &request[line + 2..];
    while let Some(length) = length(rest) {
        let word = &rest[..length];
        let line = word.windows(2).position(|two| two == b"\r\n");
        let begin = line.expect("it is a frame") + 2;
        words.push(word.get(begin..length - 2).unwrap_or_default());
        rest = &rest[length..];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_all_of_it_is_there() {
        let reply = b"*3\r\n+ok\r\n*0\r\n*2\r\n$2\r\n\r\n\r\n$-1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";
        let first = reply.len() - b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n".len();

        for end in 0..reply.len() {
            let length = length(&reply[..end]);
            assert_eq!(length, (end >= first).then_some(first), "{end}");
        }
        let mut buffer = reply.to_vec();
        assert!(!is_message(&take(&mut buffer).unwrap()));
        assert!(is_message(&take(&mut buffer).unwrap()));
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_request_of_the_link_is_told_by_its_operation() {
        let request = |words: &[&str]| {
            let head = [
                "EVALSHA",
                "sha",
                "1",
                "key",
                "incarnation",
                "7",
                "secret",
                "1",
            ];
            let words = head.iter().chain(words);
            let count = words.clone().count();
            let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
            format!("*{count}\r\n{}", words.collect::<String>()).into_bytes()
        };

        let create = request(&["multi", "sequential", "/a-", "", "0", ""]);
        assert_eq!(operation(&create), Some(Operation::CREATE));
        let both = request(&["multi", "leave", "/a/x", "", "0", "7"]);
        assert_eq!(operation(&both), Some(Operation::MULTI));
        assert!(is_upkeep(&request(&["touch", "60"])) && !is_upkeep(&create));
        assert!(!is_answered(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n"));
    }
}
