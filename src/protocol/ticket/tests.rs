use proptest::prelude::*;

use super::*;

#[test]
fn foreign_tickets_are_read() {
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let hex = "0123456789abcdef0123456789abcdef";
    for (name, seq, kind) in [
        ("lock-0000000012".into(), 12, Mode::Exclusive),
        (format!("_c_{uuid}-lock-0000000003"), 3, Mode::Exclusive),
        (format!("_c_{hex}-lock-0000000003"), 3, Mode::Exclusive),
        (format!("_c_{uuid}-__READ__0000000004"), 4, Mode::Shared),
        (format!("_c_{uuid}-__WRIT__0000000005"), 5, Mode::Exclusive),
        (format!("_c_{uuid}-latch-0000000006"), 6, Mode::Exclusive),
        (format!("{hex}__lock__0000000007"), 7, Mode::Exclusive),
        (format!("{hex}__rlock__0000000008"), 8, Mode::Shared),
        (format!("{hex}-lock-0000000009"), 9, Mode::Exclusive),
        ("read-0000000010".into(), 10, Mode::Shared),
        ("write-0000000011".into(), 11, Mode::Exclusive),
        ("lock--000000001".into(), -1, Mode::Exclusive),
        ("lock--2147483648".into(), i32::MIN, Mode::Exclusive),
    ] {
        let ticket = Ticket::parse(&name);

        assert_eq!(
            ticket,
            Some(Ticket {
                seq,
                kind,
                name: name.clone()
            }),
            "{name}"
        );
    }
}

#[test]
fn junk_is_not_a_ticket() {
    for name in [
        "",
        "foo",
        "lock-abc",
        "lock-",
        "lock-123456789",
        "lock-00000000012",
        "lock-9999999999",
        "lock--0000000001",
        "lock-+000000001",
        "lock-٠٠٠٠٠٠٠٠٠١",
        "xlock-0000000001",
        "_c_nope-lock-0000000001",
        "lock-0000000001x",
        "x-1234-0000000001",
        "lease-0000000001",
    ] {
        assert_eq!(Ticket::parse(name), None, "{name}");
    }
}

#[test]
fn the_predecessor_of_the_first_negative_number_is_the_last_positive_one() {
    let first_negative = Ticket::ours(Recipe::Lock, i32::MIN);

    assert_eq!(
        first_negative.predecessor(Recipe::Lock),
        Some(Ticket::ours(Recipe::Lock, i32::MAX))
    );
    assert!(Ticket::ours(Recipe::Lock, i32::MAX).is_before(&first_negative));
    assert_eq!(
        Ticket::ours(Recipe::Lock, 0).predecessor(Recipe::Lock),
        None
    );
}

#[test]
fn a_ticket_that_comes_to_share_keeps_its_number_and_what_stands_before_its_tag() {
    let guest = Ticket::ours(Recipe::Write, 7).guest(Uuid::nil());
    for ticket in [
        Ticket::ours(Recipe::Write, 7),
        Ticket::ours(Recipe::Write, i32::MAX),
        Ticket::ours(Recipe::Lock, 7),
        guest.clone(),
    ] {
        let shared = ticket.shared();

        assert_eq!(Ticket::parse(&shared.name), Some(shared.clone()));
        assert_eq!((shared.seq, shared.kind), (ticket.seq, Mode::Shared));
    }
    assert_eq!(
        guest.shared().name,
        "_c_00000000-0000-8000-8000-000000000000-__READ__0000000007"
    );
}

#[test]
fn a_data_line_reads_any_bytes() {
    assert_eq!(TicketData::parse(b"10.0.0.7"), None);
    assert_eq!(TicketData::parse(&[0xff, 0]), None);
    assert_eq!(TicketData::parse(b""), None);
    let line = br#"{"pid":3,"attempt":"01234567-89ab-cdef-0123-456789abcdef","more":1}"#;
    assert_eq!(TicketData::parse(line).map(|line| line.pid), Some(3));
}

/// `docs/versions.md` promises it to those who run another version in the same queue.
#[test]
fn what_is_written_into_tickets_stays_the_same() {
    let line = TicketData {
        owner: Some("o".into()),
        host: "h".into(),
        pid: 3,
        label: Some("l".into()),
        trace: Some("t".into()),
        attempt: Uuid::from_u128(1),
        at: 5,
        guest_of: Some(7),
        value: Some("v".into()),
        permits: Some(2),
        revoked: true,
    };
    let bytes = r#"{"owner":"o","host":"h","pid":3,"label":"l","trace":"t","attempt":"00000000-0000-0000-0000-000000000001","#;
    let rest = r#""at":5,"guest_of":7,"value":"v","permits":2,"revoked":true}"#;
    let recipes = [
        Recipe::Lock,
        Recipe::Read,
        Recipe::Write,
        Recipe::Lead,
        Recipe::KazooLock,
        Recipe::KazooRead,
        Recipe::KazooWrite,
    ];

    assert_eq!(
        String::from_utf8(line.to_bytes()).unwrap(),
        [bytes, rest].concat()
    );
    assert_eq!(
        recipes.map(Recipe::prefix),
        [
            "lock-",
            "__READ__",
            "__WRIT__",
            "latch-",
            "__lock__",
            "__rlock__",
            "__lock__"
        ]
    );
}

#[test]
fn a_line_has_a_trace_if_there_is_one_and_is_read_without() {
    let line = |trace: Option<&str>| TicketData {
        trace: trace.map(String::from),
        attempt: Uuid::from_u128(1),
        ..TicketData::default()
    };
    let [with, without] = [line(Some("4bf9")), line(None)];

    let text = String::from_utf8(without.to_bytes()).unwrap();
    assert!(!text.contains("trace"), "{text}");
    assert_eq!(TicketData::parse(text.as_bytes()), Some(without));
    assert_eq!(TicketData::parse(&with.to_bytes()), Some(with));
}

#[test]
fn another_programs_json_is_not_a_line_of_ours() {
    for theirs in [
        &b"{}"[..],
        b"[]",
        br#"["job"]"#,
        br#"{"host":"10.0.0.7","pid":3,"owner":"job","permits":2}"#,
    ] {
        assert_eq!(TicketData::parse(theirs), None, "{theirs:?}");
    }
}

/// The zeros of scripts whose digits Java's `%010d` prints where the locale asks for them, and
/// a few more.
const ZEROS: [char; 6] = [
    '\u{660}',
    '\u{6f0}',
    '\u{966}',
    '\u{e50}',
    '\u{ff10}',
    '\u{1d7ce}',
];

proptest! {
    // docs/failures.md row 47: a server in an Arabic locale once wrote such names.
    #[test]
    fn row_47_a_number_in_the_digits_of_another_script_is_no_ticket(
        seq in 0..=i32::MAX,
        zero in prop::sample::select(&ZEROS[..]),
        tag in prop::sample::select(&TAGS[..]),
        foreign in 1..1_u32 << 10,
    ) {
        let digits = format!("{seq:010}");
        let digits = digits.chars().enumerate().map(|(at, digit)| {
            let moved = char::from_u32(u32::from(zero) + u32::from(digit) - u32::from('0'));
            moved.filter(|_| foreign & (1 << at) != 0).unwrap_or(digit)
        });
        let name = format!("{}{}", tag.0, digits.collect::<String>());

        prop_assert_eq!(Ticket::parse(&name), None);
    }

    #[test]
    fn parse_after_format_is_the_identity(seq: i32) {
        let ticket = Ticket::ours(Recipe::Lock, seq);

        prop_assert_eq!(Ticket::parse(&ticket.name), Some(ticket));
    }

    #[test]
    fn parse_never_panics(name in any::<String>()) {
        let _ignored = Ticket::parse(&name);
    }

    #[test]
    fn order_holds_across_the_end_of_the_counter(start: i32, steps in prop::collection::vec(1..1000i32, 1..20)) {
        let mut seq = start;
        let mut tickets = vec![Ticket::ours(Recipe::Lock, seq)];
        for step in steps {
            seq = seq.wrapping_add(step);
            tickets.push(Ticket::ours(Recipe::Lock, seq));
        }
        let mut shuffled = tickets.clone();
        shuffled.reverse();

        prop_assert_eq!(in_order(shuffled), tickets.clone());
        prop_assert!(tickets.windows(2).all(|pair| pair[0].is_before(&pair[1]) && !pair[1].is_before(&pair[0])));
    }

    #[test]
    fn a_data_line_survives_the_wire(host in ".*", pid: u32, label in prop::option::of(".*"), at: u64) {
        let line = TicketData { host, pid, label, attempt: Uuid::new_v4(), at, ..TicketData::default() };

        prop_assert_eq!(TicketData::parse(&line.to_bytes()), Some(line));
    }
}
