//! The parts of PostgreSQL's protocol that show which reply answers which request. (pure)
//!
//! A request is all up to a `Sync`, and its reply all up to a `ReadyForQuery`. Replies have no
//! number and come in the order of their requests. Notifications may stand between them.

use std::borrow::Cow;
use std::collections::HashMap;

use super::frames::Operation;
use super::protocol::Way;

/// The length of the message at the front, and its kind; the first one of a client has none.
fn message(bytes: &[u8]) -> Option<(usize, u8)> {
    let (kind, rest) = match bytes {
        [0, ..] => (0, bytes),
        [kind, rest @ ..] => (*kind, rest),
        [] => return None,
    };
    let length = usize::try_from(int(rest, 0)?).ok()? + bytes.len() - rest.len();
    (bytes.len() >= length).then_some((length, kind))
}

/// Takes one whole request or reply off the front; None until all of it has arrived.
pub fn take(buffer: &mut Vec<u8>, way: Way) -> Option<Vec<u8>> {
    let mut end = 0;
    loop {
        let rest = &buffer[end..];
        let (length, kind) = message(rest)?;
        let message = &rest[..length];
        let is_end = match (way, kind) {
            (Way::ToServer, kind) => matches!(kind, 0 | b'S' | b'Q' | b'X' | b'p'),
            (_, b'Z') => true,
            // A password is asked for; or nothing comes behind it.
            (_, b'R') => int(message, 5) != Some(0),
            (_, b'E') => [&b"FATAL\0"[..], b"PANIC\0"].contains(&message.get(6..12)?),
            (_, b'A' | b'N' | b'S') => end == 0,
            _ => false,
        };
        end += length;
        if is_end {
            return Some(buffer.drain(..end).collect());
        }
    }
}

/// Whether a piece of the server is no reply.
pub fn is_message(piece: &[u8]) -> bool {
    matches!(piece.first(), Some(b'A' | b'N' | b'S'))
}

/// Whether a request has a reply.
pub fn is_answered(request: &[u8]) -> bool {
    request.first() != Some(&b'X')
}

/// Statements for a ticket that comes or goes, told by the call of a function that is their other
/// way.
const TICKETS: [(&str, &str); 2] = [("ARRAY['sequential']", "join"), ("ARRAY['leave']", "leave")];

/// A call of one of the functions of the link, or what does the same.
#[derive(Debug)]
pub struct Asked<'a> {
    pub function: &'a str,
    parameters: Vec<&'a [u8]>,
}

/// The statements that a connection has prepared, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prepared(HashMap<Vec<u8>, Vec<u8>>);

impl Prepared {
    /// A request as it would be if nothing was prepared.
    pub fn plain<'a>(&mut self, request: &'a [u8]) -> Cow<'a, [u8]> {
        match message(request) {
            Some((length, b'P')) => {
                let statement = &request[..length];
                if let Some(name) = words(&statement[5..]).next() {
                    self.0.insert(name.to_vec(), statement.to_vec());
                }
            }
            Some((_, b'B')) => {
                // Behind the name of the portal.
                let name = words(&request[5..]).nth(1).unwrap_or_default();
                if let Some(statement) = self.0.get(name) {
                    return [statement, request].concat().into();
                }
            }
            _ => {}
        }
        request.into()
    }
}

/// What a request asks of the functions of the link.
pub fn asks(request: &[u8]) -> Option<Asked<'_>> {
    let (length, b'P') = message(request)? else {
        return None;
    };
    // Behind the name of the statement.
    let sql = words(request.get(5..length)?).nth(1)?;
    let sql = std::str::from_utf8(sql).ok()?;
    let function = if let Some((_, call)) = sql.split_once(" AS echo, reply.* FROM ") {
        call.split_once('(')?.0.rsplit('.').next()?
    } else {
        let is_ticket = |(kind, _): &(&str, &str)| sql.contains(kind);
        TICKETS.into_iter().find(is_ticket)?.1
    };
    let bind = &request[length..];
    let (_, b'B') = message(bind)? else {
        return None;
    };
    Some(Asked {
        function,
        parameters: parameters(bind)?,
    })
}

impl<'a> Asked<'a> {
    /// The session, and which of its connections it is.
    pub fn session(&self) -> Option<(i64, i64)> {
        Some((
            long(self.parameters.get(1)?)?,
            long(self.parameters.get(3)?)?,
        ))
    }

    /// Whether it keeps the session alive, or belongs to the connection.
    pub fn is_upkeep(&self) -> bool {
        matches!(self.function, "touch" | "open" | "rearm")
    }

    fn texts(&self, at: usize) -> Vec<&'a [u8]> {
        let array = self.parameters.get(at).copied().unwrap_or_default();
        elements(array).unwrap_or_default()
    }

    /// What ZooKeeper's protocol calls it.
    pub fn operation(&self) -> Option<Operation> {
        Some(match self.function {
            "multi" => match self.texts(6)[..] {
                [b"sequential" | b"ephemeral" | b"create" | b"container"] => Operation::CREATE,
                [b"delete"] => Operation::DELETE,
                [b"set"] => Operation::SET_DATA,
                _ => Operation::MULTI,
            },
            "join" => Operation::CREATE,
            "leave" => Operation::MULTI,
            "read" => Operation::MULTI_READ,
            "watch" if self.parameters.get(4) == Some(&&b"c"[..]) => Operation::GET_CHILDREN,
            "watch" => Operation::GET_DATA,
            "touch" => Operation::SYNC,
            "close" => Operation::CLOSE_SESSION,
            _ => return None,
        })
    }

    /// The paths that it is about, one behind the other. On the wire they are in two words.
    pub fn paths(&self) -> Vec<u8> {
        let (dirs, names) = match self.function {
            "multi" => (self.texts(7), self.texts(8)),
            "read" => (self.texts(5), self.texts(6)),
            "watch" => (
                self.parameters[5..6].to_vec(),
                self.parameters[6..7].to_vec(),
            ),
            "join" | "leave" => (
                self.parameters[6..7].to_vec(),
                self.parameters[7..8].to_vec(),
            ),
            _ => return Vec::new(),
        };
        let paths = dirs.iter().zip(&names);
        let paths = paths.map(|(dir, name)| [dir, &b"/"[..], name, b"\n"].concat());
        paths.flatten().collect()
    }
}

/// The values of a `Bind`.
fn parameters(bind: &[u8]) -> Option<Vec<&[u8]>> {
    // Behind the names of its portal and of its statement.
    let names: Vec<&[u8]> = words(bind.get(5..)?).take(2).collect();
    let mut at = 5 + names.iter().map(|name| name.len() + 1).sum::<usize>();
    let formats = usize::from(short(bind, at)?);
    at += 2 + 2 * formats;
    let count = short(bind, at)?;
    at += 2;
    let mut values = Vec::new();
    for _ in 0..count {
        let (value, end) = value(bind, at)?;
        values.push(value);
        at = end;
    }
    Some(values)
}

/// A value with its length before it, and where the next one begins.
fn value(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = usize::try_from(int(bytes, at)?).unwrap_or(0);
    let end = at + 4 + length;
    Some((bytes.get(at + 4..end)?, end))
}

/// The elements of an array of one dimension.
fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    // Dimensions, nulls, type, length, lower bound.
    let count = int(array, 12)?;
    let mut at = 20;
    let mut elements = Vec::new();
    for _ in 0..count {
        let (element, end) = value(array, at)?;
        elements.push(element);
        at = end;
    }
    Some(elements)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at + 4)?;
    Some(i32::from_be_bytes(four.try_into().ok()?))
}

fn long(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    fn array(texts: &[&str]) -> Vec<u8> {
        let head = [1, 0, 25, i32::try_from(texts.len()).unwrap(), 1];
        let mut array: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        for text in texts {
            array.extend(i32::try_from(text.len()).unwrap().to_be_bytes());
            array.extend(text.as_bytes());
        }
        array
    }

    fn multi(kinds: &[&str], dirs: &[&str], names: &[&str]) -> Vec<u8> {
        let sql = "SELECT $14::int8 AS echo, reply.* FROM it_1.multi($1) AS reply";
        let parameters = [
            b"incarnation".to_vec(),
            7_i64.to_be_bytes().to_vec(),
            b"secret".to_vec(),
            2_i64.to_be_bytes().to_vec(),
            array(&[]),
            array(&[]),
            array(kinds),
            array(dirs),
            array(names),
        ];
        request(sql, &parameters)
    }

    fn request(sql: &str, parameters: &[Vec<u8>]) -> Vec<u8> {
        let statement = [b"\0", sql.as_bytes(), b"\0\0\0"].concat();
        let mut bind = vec![0, 0, 0, 1, 0, 1, 0, u8::try_from(parameters.len()).unwrap()];
        for parameter in parameters {
            bind.extend(i32::try_from(parameter.len()).unwrap().to_be_bytes());
            bind.extend(parameter);
        }
        [
            message(b'P', &statement),
            message(b'B', &bind),
            message(b'S', b""),
        ]
        .concat()
    }

    #[test]
    fn a_ticket_that_comes_or_goes_is_told_by_its_other_way() {
        let words = ["incarnation", "", "secret", "", "", "a", "/a", "x-"];
        let mut parameters = words.map(|word| word.as_bytes().to_vec());
        for at in [1, 3] {
            parameters[at] = 7_i64.to_be_bytes().to_vec();
        }
        let ways = [
            ("sequential", Operation::CREATE),
            ("leave", Operation::MULTI),
        ];
        for (kind, operation) in ways {
            let sql = format!("WITH mine AS () SELECT * FROM it_1.multi($1, ARRAY['{kind}'])");
            let request = request(&sql, &parameters);

            let told = asks(&request).unwrap();

            assert_eq!(told.operation(), Some(operation));
            assert_eq!(told.session(), Some((7, 7)));
            assert_eq!(told.paths(), b"/a/x-\n");
        }
    }

    #[test]
    fn a_reply_is_taken_when_all_of_it_is_there() {
        let notified = message(b'A', b"\0\0\0\x01a\0b\0");
        let reply = [message(b'1', b""), message(b'Z', b"I")].concat();
        let both = [&notified[..], &reply].concat();

        for end in 0..both.len() {
            let mut buffer = both[..end].to_vec();
            let taken = take(&mut buffer, Way::ToClient);
            let is_whole = end >= notified.len();
            assert_eq!(taken, is_whole.then(|| notified.clone()), "{end}");
        }
        let mut buffer = both.clone();
        assert!(is_message(&take(&mut buffer, Way::ToClient).unwrap()));
        assert!(!is_message(&take(&mut buffer, Way::ToClient).unwrap()));
        assert!(buffer.is_empty());
        let mut fatal = message(b'E', b"SFATAL\0C57P01\0\0");
        assert!(take(&mut fatal, Way::ToClient).is_some(), "nothing follows");
    }

    #[test]
    fn a_request_that_was_prepared_is_told_by_its_statement() {
        let plain = multi(&["sequential"], &["/a"], &["x-"]);
        let (length, _) = super::message(&plain).unwrap();
        let (statement, bind) = plain.split_at(length);
        let named = |body: &[u8], before: &[u8]| [before, b"s1", body].concat();
        let prepare = message(b'P', &named(&statement[5..], b""));
        let prepare = [prepare, message(b'S', b"")].concat();
        let bound = super::message(bind).unwrap().0;
        let request = message(b'B', &named(&bind[6..bound], b"\0"));
        let request = [&request, &bind[bound..]].concat();
        let mut prepared = Prepared::default();

        assert!(asks(&prepared.plain(&request)).is_none(), "it is unknown");
        assert!(
            asks(&prepared.plain(&prepare)).is_none(),
            "it only prepares"
        );
        let told = prepared.plain(&request);

        let told = asks(&told).unwrap();
        assert_eq!(told.operation(), Some(Operation::CREATE));
        assert_eq!(told.session(), Some((7, 2)));
        assert_eq!(told.paths(), b"/a/x-\n");
    }

    #[test]
    fn a_request_of_the_link_is_told_by_its_function() {
        let create = multi(&["sequential"], &["/a"], &["x-"]);
        let both = multi(&["set", "delete"], &["/a", "/a"], &["x", "y"]);
        let mut wire = [&[0, 0, 0, 8, 0, 3, 0, 0][..], &create, &both].concat();

        let start = take(&mut wire, Way::ToServer).unwrap();
        let [create, both] = [(); 2].map(|()| take(&mut wire, Way::ToServer).unwrap());

        assert!(asks(&start).is_none() && wire.is_empty());
        let create = asks(&create).unwrap();
        assert_eq!(create.operation(), Some(Operation::CREATE));
        assert_eq!(create.session(), Some((7, 2)));
        assert_eq!(create.paths(), b"/a/x-\n");
        let both = asks(&both).unwrap();
        assert_eq!(both.operation(), Some(Operation::MULTI));
        assert!(!both.is_upkeep());
    }
}
