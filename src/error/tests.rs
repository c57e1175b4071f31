use super::*;

#[test]
fn errors_can_cross_threads_and_be_cloned() {
    fn check<T: Send + Sync + Clone + std::error::Error + 'static>() {}

    check::<Error>();
}

#[test]
fn messages_say_what_was_done_with_which_lock_and_count_right() {
    let name = || "x".to_owned();
    let timed_out = |ms| Error::TimedOut {
        name: name(),
        waited: Duration::from_millis(ms),
    };
    let not_upgradable = |others| Error::NotUpgradable {
        name: name(),
        others,
    };
    let closed = Error::Closed {
        name: "the keeper".into(),
        doing: "join the queue of",
    };
    let too_many = Error::TooManyPermits {
        name: name(),
        asked: 2,
        limit: 1,
    };
    for (error, said) in [
        (timed_out(0), "x was not granted at once"),
        (timed_out(1500), "x was not granted within 1.5s"),
        (
            not_upgradable(1),
            "the read lock of x cannot be upgraded: another one holds it or waits in front",
        ),
        (
            not_upgradable(2),
            "the read lock of x cannot be upgraded: 2 others hold it or wait in front",
        ),
        (
            closed.about("x"),
            "the keeper was closed while trying to join the queue of x",
        ),
        (
            too_many,
            "cannot acquire 2 permits of semaphore x: the limit is 1",
        ),
    ] {
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn unreachable_names_each_address_with_its_reason() {
    let refused = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
    let failures = vec![
        AddressFailure::new("a:1".into(), UnreachableReason::Silent),
        AddressFailure::new("b:2".into(), UnreachableReason::NotZooKeeper),
        AddressFailure::new("c:3".into(), UnreachableReason::Refused(refused)),
    ];
    let error = Error::unreachable(failures, Duration::from_secs(3));

    let text = error.to_string();

    assert!(
        text.contains("a:1: accepts") && text.contains("b:2: answers"),
        "{text}"
    );
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "connection refused"
    );
}
