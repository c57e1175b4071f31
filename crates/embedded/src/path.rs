//! The rules for paths, and how a path splits.
//!
//! Invariant: a path that passes [`is_valid`] is one that ZooKeeper accepts for a new node. It
//! knows no tree.

/// Whether a node of this path may be created.
pub(super) fn is_valid(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(names) = path.strip_prefix('/') else {
        return false;
    };
    names
        .split('/')
        .all(|name| !matches!(name, "" | "." | ".."))
        && names.chars().all(is_allowed)
}

/// Java checks UTF-16 units, so a character outside the basic plane counts as surrogates and is
/// refused.
fn is_allowed(character: char) -> bool {
    !matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Splits into the parent's path and the name; `None` without any slash. The path need not be
/// valid.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    Some((if parent.is_empty() { "/" } else { parent }, name))
}

/// The path of a child.
pub(super) fn join(parent: &str, name: &str) -> String {
    if parent == "/" {
        format!("/{name}")
    } else {
        format!("{parent}/{name}")
    }
}

/// The server's own nodes, which cannot be deleted.
pub(super) fn is_special(path: &str) -> bool {
    matches!(
        path,
        "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_judged_as_the_original_judges_them() {
        for good in [
            "/",
            "/p",
            "/p/.x",
            "/p/..x",
            "/p/x..",
            "/p/é",
            "/p/ ",
            "/p/\u{a0}",
        ] {
            assert!(is_valid(good), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "//",
            "/p/",
            "/p//x",
            "/p/.",
            "/p/..",
            "/p/./x",
            "/p/../x",
            "/p/\0",
            "/p/\u{1}",
            "/p/\u{1f}",
            "/p/\u{7f}",
            "/p/\u{9f}",
            "/p/\u{e000}",
            "/p/\u{fff0}",
            "/p/\u{fffd}",
            "/p/😀",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_path_splits_at_its_last_slash() {
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/a/b"), Some(("/a", "b")));
        assert_eq!(split("a"), None);
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }
}
