use super::*;
use crate::protocol::mark::DirectoryData;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const HEX: &str = "0123456789abcdef0123456789abcdef";

/// Each name that some library gives, and the claims that may stand beside it.
#[test]
fn each_name_has_its_companions_and_is_a_stranger_to_all_others() {
    use Recipe::{KazooLock, KazooRead, KazooWrite, Lead, Lock, Read, Write};
    let kazoo_rw = &[KazooRead, KazooWrite][..];
    for (node, companions) in [
        ("lock-0000000001".to_owned(), &[Lock, Read, Write][..]),
        (
            Ticket::ours(Lock, 1).guest(Uuid::nil()).name,
            &[Lock, Read, Write],
        ),
        (format!("_c_{UUID}-lock-0000000001"), &[Lock]),
        (format!("_c_{HEX}-lock-0000000001"), &[Lock]),
        (format!("{HEX}-lock-0000000001"), &[Lock]),
        ("__READ__0000000001".to_owned(), &[Lock, Read, Write]),
        (
            Ticket::ours(Read, 1).guest(Uuid::nil()).name,
            &[Lock, Read, Write],
        ),
        (format!("_c_{UUID}-__WRIT__0000000001"), &[Read, Write]),
        (format!("_c_{UUID}-latch-0000000001"), &[Lead]),
        (
            "__lock__0000000001".to_owned(),
            &[KazooLock, KazooRead, KazooWrite],
        ),
        (
            format!("{HEX}__lock__0000000001"),
            &[KazooLock, KazooRead, KazooWrite],
        ),
        (format!("{HEX}__rlock__0000000001"), kazoo_rw),
        ("read-0000000001".to_owned(), &[]),
        ("write-0000000001".to_owned(), &[]),
    ] {
        for recipe in [Lock, Read, Write, Lead, KazooLock, KazooRead, KazooWrite] {
            let children = ["notes".to_owned(), node.clone(), "lock-me".to_owned()];
            let refused = check_neighbours("shared", Some(recipe), &children).err();

            let is_companion = companions.contains(&recipe);
            assert_eq!(refused.is_none(), is_companion, "{recipe:?} beside {node}");
            let names_it = |error: Error| matches!(error, Error::UnsafeMix { node: found, .. } if found == node);
            assert!(refused.is_none_or(names_it));
        }
        assert!(stranger(None, &node).is_some(), "{node}");
    }
}

#[test]
fn names_of_other_recipes_are_strangers_if_they_are_a_sessions() {
    for node in [
        "semaphore-0000000001".to_owned(),
        format!("_c_{UUID}-lease-0000000001"),
        "x-72057594037927936-0000000001".to_owned(),
        format!("{UUID}_0000000001"),
        format!("latch-{UUID}-0000000001"),
        HEX.to_owned(),
    ] {
        let children = ["notes".to_owned(), node.clone()];
        assert!(check_neighbours("shared", Some(Recipe::Lock), &children).is_ok());
        let [doubt] = &in_doubt(Some(Recipe::Lock), &children, None)[..] else {
            panic!("{node} is in doubt");
        };

        // A lock below this one may have such a name.
        for owner in [0, i64::MIN, 0xff00_0000_0000_0001_u64 as i64] {
            let below = doubt.check_node("shared", b"", owner);
            assert!(below.is_ok(), "{node}: {owner:x}");
        }
        let theirs = doubt.check_node("shared", b"", 0x0100_0000_0000_0001);
        let error = theirs.unwrap_err();
        assert!(error.to_string().contains(&node), "{error}");
    }
}

#[test]
fn a_semaphore_is_told_by_what_is_in_its_nodes() {
    let children = ["queue", "held", "limit"].map(String::from);
    for recipe in [Recipe::Lock, Recipe::Read, Recipe::Lead, Recipe::KazooLock] {
        let [limit, held] = &in_doubt(Some(recipe), &children, None)[..] else {
            panic!("two tell");
        };
        assert!(!limit.asks_for_children() && held.asks_for_children());

        let error = limit.check_node("shared", b"3", 0).unwrap_err().to_string();
        assert!(
            error.contains("beside limit, which is the limit of a semaphore"),
            "{error}"
        );
        let permit = ["notes", "permit-2-0000000007"].map(String::from);
        let error = held.check_children("shared", &permit);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("beside held/permit-2-0000000007"), "{error}");

        // Locks below this one, in use or not.
        for data in [&b""[..], b"another program's", &DirectoryData::note(7)] {
            assert!(limit.check_node("shared", data, 0).is_ok());
        }
        let tickets = [Ticket::ours(recipe, 7).name];
        assert!(held.check_children("shared", &tickets).is_ok());
    }
    assert_eq!(in_doubt(None, &children, None), [], "its own nodes");
}

#[test]
fn what_no_lock_library_has_given_is_no_stranger() {
    for node in [
        "",
        "limit",
        "config",
        "lock-abc",
        "x-ray",
        "x-lock-0000000001",
        "lease-1",
        &HEX[1..],
        "_0000000001",
    ] {
        let children = [node.to_owned()];
        assert_eq!(stranger(Some(Recipe::Lock), node), None, "{node}");
        assert_eq!(stranger(None, node), None, "{node}");
        assert_eq!(in_doubt(None, &children, None), [], "{node}");
    }
}

#[test]
fn nets_tickets_are_in_doubt_where_somebody_stands_whom_they_do_not_see() {
    let nets = |unseen: &str, mine: &Ticket| -> Vec<String> {
        let mut children: Vec<String> = (0..40)
            .map(|n| Ticket::ours(Recipe::Lock, n).name)
            .collect();
        children.push(unseen.to_owned());
        let doubts = in_doubt(Some(Recipe::Lock), &children, Some(mine));
        doubts.into_iter().map(|doubt| doubt.node).collect()
    };
    let mine = Ticket::ours(Recipe::Lock, 30);

    assert_eq!(nets("notes", &mine), [""; 0], "all of them see each other");
    for unseen in [
        format!("_c_{UUID}-lock-0000000050"),
        Ticket::ours(Recipe::Read, 50).name,
        Ticket::ours(Recipe::Lock, 50).guest(Uuid::nil()).name,
    ] {
        let found = nets(&unseen, &mine);
        assert_eq!(
            (found.len(), &*found[0]),
            (MOST, "lock-0000000029"),
            "{unseen}"
        );
    }
    let reader = Ticket::ours(Recipe::Read, 1);
    let children = ["lock-0000000000".to_owned(), reader.name.clone()];
    assert_eq!(
        in_doubt(Some(Recipe::Read), &children, Some(&reader)).len(),
        1
    );
}

#[test]
fn our_own_names_are_at_home_in_their_queues() {
    for recipe in [
        Recipe::Lock,
        Recipe::Read,
        Recipe::Write,
        Recipe::Lead,
        Recipe::KazooLock,
        Recipe::KazooRead,
        Recipe::KazooWrite,
    ] {
        let ticket = Ticket::ours(recipe, 7);
        let (guest, shared) = (ticket.guest(Uuid::nil()), ticket.shared());

        for node in [&ticket.name, &guest.name] {
            assert_eq!(stranger(Some(recipe), node), None, "{node}");
        }
        assert_eq!(ticket.kind, recipe.kind());
        if matches!(recipe, Recipe::Write | Recipe::KazooWrite) {
            assert_eq!(stranger(Some(recipe), &shared.name), None, "{shared:?}");
        }
    }
}
