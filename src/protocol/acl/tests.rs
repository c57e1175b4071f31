use super::*;

fn entries(text: &str) -> Vec<Entry> {
    text.parse::<Acl>().unwrap().entries
}

fn beyond(ours: &str, theirs: &str) -> Option<String> {
    let allowed = Allowed::settled(entries(ours));
    allowed
        .beyond(&entries(theirs))
        .map(|entry| entry.to_string())
}

#[test]
fn a_list_is_wider_if_it_allows_anybody_anything_more() {
    let ours = "digest:a:A=:cdrwa,world:anyone:r";
    for narrower in [
        ours,
        "digest:a:A=:r",
        "digest:b:B=:r",
        "world:anyone:r",
        "digest:a:A=:cd,digest:a:A=:rw",
    ] {
        assert_eq!(beyond(ours, narrower), None, "{narrower}");
    }
    for (wider, who) in [
        ("world:anyone:cdrwa", "world:anyone:cdrwa"),
        ("digest:a:A=:cdrwa,world:anyone:rw", "world:anyone:rw"),
        ("digest:a:A=:cdrwa,digest:a:B=:cdrwa", "digest:a:x:cdrwa"),
        ("digest:a:A=:cdrwa,ip:10.0.0.1:c", "ip:10.0.0.1:c"),
        ("digest:a:A=:cdrwa,x509:CN=a:d", "x509:CN=a:d"),
    ] {
        assert_eq!(beyond(ours, wider).as_deref(), Some(who), "{wider}");
    }
    assert!(Acl::open().is_open() && !Acl::creator().is_open());
    assert!(entries("open") == Acl::open().entries && entries("creator") == Acl::creator().entries);
}

/// Whoever lacks `ADMIN` sees users and no hashes.
#[test]
fn a_covered_list_is_believed_where_reading_it_proves_that_we_are_in_it() {
    for ours in [
        "digest:a:A=:cdrw,digest:b:B=:cdrwa",
        "digest:a:x:cdrw,digest:b:x:cdrwa",
    ] {
        assert_eq!(beyond(ours, "digest:a:x:cdrw,digest:b:x:cdrwa"), None);
        assert_eq!(beyond(ours, "digest:a:x:cdrw"), None);
        for wider in [
            "digest:a:x:cdrwa",
            "digest:a:x:cdrw,digest:a:x:r",
            "digest:c:x:r",
        ] {
            assert!(beyond(ours, wider).is_some(), "{wider}");
        }
    }
    // A stranger of that name could have let us all in, and then only read.
    let window = "digest:a:x:cdrw,world:anyone:r";
    assert_eq!(beyond(window, window).as_deref(), Some("digest:a:x:cdrw"));
    assert_eq!(beyond(window, "digest:b:x:r,world:anyone:r"), None);
}

#[test]
fn who_has_made_nothing_yet_knows_its_users_by_their_names() {
    let credential = |scheme: &str, secret: &str| Credential {
        scheme: scheme.into(),
        secret: secret.into(),
    };
    let credentials = [
        credential("digest", "a:secret"),
        credential("sasl", "b:secret"),
    ];
    let allowed = Allowed::asked(&"auth::cdrw,world:anyone:r".parse().unwrap(), &credentials);

    for ours in [
        "digest:a:A=:cdrw",
        "x509:CN=a:cdrw,world:anyone:r",
        "digest:b:B=:r",
    ] {
        assert_eq!(allowed.beyond(&entries(ours)), None, "{ours}");
    }
    for theirs in [
        "digest:a:A=:a",
        "digest:b:B=:w",
        "x509:CN=a:a",
        "ip:10.0.0.1:w",
        "world:anyone:w",
        "digest:a:A=:cdrw,digest:a:B=:cdrw",
    ] {
        assert!(allowed.beyond(&entries(theirs)).is_some(), "{theirs}");
    }
    let plain = Allowed::asked(&"digest:a:A=:cdrw".parse().unwrap(), &credentials);
    assert_eq!(plain, Allowed::settled(entries("digest:a:A=:cdrw")));
}

#[test]
fn lists_are_read_as_zookeepers_own_tools_do() {
    let acl: Acl = "digest:who:aGFzaA==:cdrw,world:anyone:r,auth::cdrwa"
        .parse()
        .unwrap();

    let entry = |scheme: &str, id: &str, rights| Entry {
        scheme: scheme.into(),
        id: id.into(),
        rights,
    };
    assert_eq!(
        acl.entries(),
        [
            entry("digest", "who:aGFzaA==", 15),
            entry("world", "anyone", 1),
            entry("auth", "", 31)
        ]
    );
    assert_eq!(acl.to_string().parse::<Acl>().unwrap(), acl);
    assert!(acl.needs_credential() && !Acl::open().needs_credential());
    assert_eq!("world:anyone:cdrwa".parse::<Acl>().unwrap(), Acl::default());
    assert_eq!("auth::acdrw".parse::<Acl>().unwrap(), Acl::creator());
}

#[test]
fn what_is_no_list_is_refused_and_named() {
    for given in [
        "",
        "world",
        "world:anyone",
        "world:anyone:",
        "world:anyone:x",
        ":a:r",
        "auth::cdrwa,",
    ] {
        let error = given.parse::<Acl>().unwrap_err();

        assert!(error.is_invalid(), "{given:?}: {error}");
        assert!(error.to_string().contains("access list"), "{error}");
    }
}

#[test]
fn a_credential_shows_no_secret() {
    let credential = Credential {
        scheme: "digest".into(),
        secret: b"who:hunter2".to_vec(),
    };

    let shown = format!("{credential:?} {credential:#?}");

    assert!(
        shown.contains("digest") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert!(!shown.contains("104"), "nor its bytes: {shown}");
}
