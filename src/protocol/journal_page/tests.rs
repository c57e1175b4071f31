use super::*;

fn line(token: i64, outcome: Option<HoldOutcome>) -> PageLine {
    let line = PageLine {
        id: Uuid::from_u128(token.unsigned_abs().into()),
        token,
        ticket: token,
        node: format!("lock-{token:010}"),
        kind: "lock".into(),
        owner: None,
        label: Some("me".into()),
        host: "here".into(),
        pid: 7,
        since_ms: 1,
        waited_ms: 2,
        held_ms: None,
        ending: None,
        why: None,
    };
    match outcome {
        Some(outcome) => line.ended(Duration::from_millis(3), outcome),
        None => line,
    }
}

fn page(tokens: std::ops::Range<i64>) -> Page {
    Page(tokens.map(|token| line(token, None)).collect())
}

#[test]
fn a_page_is_read_as_it_was_written() {
    let mut written = page(1..4);
    written.put(line(2, Some(HoldOutcome::Lost("its lease ended".into()))));
    written.put(line(3, Some(HoldOutcome::Released)));

    assert_eq!(Page::parse(&written.to_bytes()), Some(written));
    assert_eq!(Page::parse(b""), Some(Page::default()));
}

#[test]
fn other_data_is_not_taken_for_a_page() {
    for data in [&b"released"[..], b"{}", b"\xff", b"[]", b"{\"token\":1}"] {
        assert_eq!(Page::parse(data), None, "{data:?}");
    }
}

#[test]
fn an_end_stands_beside_its_beginning_whatever_comes_first() {
    let mut first = page(1..3);
    first.put(line(1, Some(HoldOutcome::Dropped)));
    let mut last = Page::default();
    last.put(line(1, Some(HoldOutcome::Dropped)));
    last.put_all(&page(1..3));

    assert_eq!(first.0.len(), 2);
    assert_eq!(first, last);
}

#[test]
fn holds_stand_in_the_order_of_their_grants_whoever_writes_first() {
    let mut page = page(2..4);
    page.put(line(1, None));

    let tokens = page.0.iter().map(|line| line.token);
    assert_eq!(tokens.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_hold_that_goes_on_under_another_ticket_is_one_line() {
    let mut page = page(1..3);
    page.put(PageLine {
        node: "__READ__0000000001".into(),
        ticket: 9,
        ..line(1, None)
    });

    assert_eq!(page.0.len(), 2);
    assert_eq!(page.0[0].ticket, 9);
}

#[test]
fn the_word_of_a_later_version_is_read_and_kept() {
    let mut later = line(1, Some(HoldOutcome::Released));
    later.ending = Some("handed on".into());
    let page = Page::parse(&Page(vec![later]).to_bytes()).unwrap();

    assert_eq!(Page::parse(&page.to_bytes()).unwrap(), page);
    let outcome = page.entries().remove(0).outcome;
    assert_eq!(outcome, Some(HoldOutcome::Other("handed on".into())));
}

#[test]
fn a_page_keeps_the_newest_within_its_bounds() {
    let mut by_number = page(0..100);
    by_number.cut(10);
    assert_eq!(by_number, page(90..100));

    let mut by_bytes = Page((0..1000).map(|token| line(token, None)).collect());
    for line in &mut by_bytes.0 {
        line.label = Some("x".repeat(1024));
    }
    by_bytes.fit();
    assert!(by_bytes.to_bytes().len() <= MOST_BYTES);
    assert!(by_bytes.0.len() > 200, "{}", by_bytes.0.len());
    assert_eq!(by_bytes.0.last().unwrap().token, 999);
}
