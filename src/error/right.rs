//! The rights of ZooKeeper's access lists. (pure)

use std::fmt;

/// A right in an access list of ZooKeeper, as in [`Error::Denied`](super::Error::Denied).
///
/// It prints as in ZooKeeper's documentation: `READ`, `WRITE`, `CREATE`, `DELETE` or `ADMIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Right {
    /// To read a node and to list its children.
    Read,
    /// To write the data of a node.
    Write,
    /// To create children of a node.
    Create,
    /// To delete children of a node.
    Delete,
    /// To change the access list of a node.
    Admin,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Delete => "DELETE",
            Self::Admin => "ADMIN",
        })
    }
}
