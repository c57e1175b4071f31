//! What is refused, and how that is told.

use redis::Value;
use testbench::ports;

use super::*;

#[test]
fn a_store_that_refuses_sessions_is_told_in_its_own_words() {
    for (command, words) in [
        (["CONFIG", "SET", "maxmemory", "1"], "used memory"),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            "NOREPLICAS",
        ),
        (["ACL", "SETUSER", "default", "-evalsha"], "may not write"),
    ] {
        on_redis(&[], async |server| {
            ask(&server, &command).await;

            let once = Keeper::builder(url(&server)).connect_timeout(Duration::ZERO);
            let error = once.new_store(true).connect().await.unwrap_err();

            assert!(error.is_unreachable(), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(words) && !text.contains("ZooKeeper"),
                "{text}"
            );
        });
    }
}

#[test]
fn keys_of_another_layout_are_told_and_left() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        for (change, layout) in [(&["HSET", "9"][..], "9"), (&["HDEL"], "1")] {
            let command = [&[change[0], "{lockkeeper}:meta", "v"], &change[1..]].concat();
            ask(&server, &command).await;

            let once = Keeper::builder(url(&server)).connect_timeout(Duration::ZERO);
            let error = once.connect().await.unwrap_err();

            let words = format!("of layout {layout}, and this Lockkeeper knows");
            assert!(error.to_string().contains(&words), "{error}");
        }
        assert!(node(&*link, "/a").await.is_some());
    });
}

/// Of some it would be found in the middle of a write, and others before the first lock.
#[test]
fn a_right_that_is_missing_is_named() {
    on_redis(&[], async |server| {
        drop(open(&server).await);
        for (right, words) in [
            ("resetchannels", "channel"),
            ("-@dangerous", "info"),
            ("-evalsha", "may not write"),
            ("-publish", "PUBLISH"),
            ("-srem", "SREM"),
            ("-hdel", "HDEL"),
            ("-del", "DEL"),
            ("-zrem", "ZREM"),
            ("resetkeys", "may not write"),
        ] {
            ask(&server, &["ACL", "DELUSER", "weak"]).await;
            let user = [
                "ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all",
            ];
            ask(&server, &[&user[..], &[right]].concat()).await;

            let url = format!("redis://weak:secret@{}", server.address());
            let once = Keeper::builder(url).connect_timeout(Duration::ZERO);
            let error = once.connect().await.unwrap_err();

            let text = error.to_string();
            assert!(
                text.contains(words) && !text.contains("credential"),
                "{right}: {text}"
            );
            let left = ask(&server, &["KEYS", "{lockkeeper}:nodes:*"]).await;
            assert_eq!(left, Value::Array(Vec::new()), "{right}");
        }
    });
}

#[test]
fn a_member_of_a_cluster_that_serves_no_key_is_told_in_its_own_words() {
    // Its usual port for other members could be anybody's.
    let members = ports::reserve(1).unwrap().remove(0);
    let port = members.number.to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &port];
    on_redis(&options, async |server| {
        let once = Keeper::builder(url(&server)).connect_timeout(Duration::ZERO);
        let error = once.new_store(true).connect().await.unwrap_err();

        assert!(error.to_string().contains("ClusterDown"), "{error}");
    });
}
