//! The errors of ZooKeeper (`KeeperException.Code`), and what follows from them.

use crate::error::RegistryErrorKind;

/// The change was not made because another one of its transaction failed.
pub(super) const ROLLED_BACK: i32 = -2;
const UNIMPLEMENTED: i32 = -6;
const NO_NODE: i32 = -101;
const BAD_VERSION: i32 = -103;
const NODE_EXISTS: i32 = -110;
const NOT_EMPTY: i32 = -111;

/// An error that depends on the state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such node, or not the one above it.
    NoNode,
    /// There is one already.
    NodeExists,
    /// Somebody else has written or changed it.
    Changed,
}

/// Returns the refusal, or `None` if the code is another error.
pub(super) fn refusal(code: i32) -> Option<Refusal> {
    match code {
        NO_NODE => Some(Refusal::NoNode),
        NODE_EXISTS => Some(Refusal::NodeExists),
        BAD_VERSION | NOT_EMPTY => Some(Refusal::Changed),
        _ => None,
    }
}

/// Returns true if the server does not know the operation.
pub(super) fn is_unimplemented(code: i32) -> bool {
    code == UNIMPLEMENTED
}

/// Returns true if there is no session any more, so that the next request needs another connection.
pub(super) fn ends_session(code: i32) -> bool {
    matches!(code, -112 | -115 | -118 | -124)
}

/// Returns the kind of an error, and what it means. `is_write` is whether the request may have changed something.
pub(super) fn describe(code: i32, is_write: bool) -> (RegistryErrorKind, String) {
    use RegistryErrorKind::{Conflict, Denied, Rejected, Unavailable, Unknown};
    let open = if is_write { Unknown } else { Unavailable };
    let (kind, text) = match code {
        NO_NODE => (Conflict, "there is no such node"),
        BAD_VERSION => (Conflict, "somebody else has written the node"),
        NODE_EXISTS => (Conflict, "there is such a node already"),
        NOT_EMPTY => (Conflict, "there are nodes below the node"),
        -102 => (Denied, "the ACL of the node does not allow it; check the credentials and the ACL"),
        -114 => (Denied, "the ACL of the new node is invalid; check the credentials"),
        -115 => (Denied, "the credentials are not accepted; check them"),
        -124 => (Denied, "the server requires SASL, which this client does not support"),
        -112 => (Unavailable, "the session has expired"),
        -118 => (Unavailable, "the session is at another server"),
        -119 => (Unavailable, "the server has no leader and only allows reading"),
        -127 => (Unavailable, "the server is overloaded"),
        -13 => (Unavailable, "there is no quorum"),
        -4 | -7 | -122 => (open, "the server has no answer of the leader in time"),
        -1..0 => (open, "the server has an internal error"),
        -5 | -8 => (Rejected, "the server does not accept the request"),
        UNIMPLEMENTED => (Rejected, "the server does not know the request; its version is too old"),
        -108 => (Rejected, "the node above it is ephemeral and cannot have nodes below"),
        -125 => (Rejected, "the quota is exceeded"),
        _ => (open, "the server has failed"),
    };
    (kind, format!("{text} (error {code} of ZooKeeper)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_may_have_been_made_is_unknown() {
        for code in [-1, -2, -3, -4, -7, -122, -999] {
            assert_eq!(describe(code, true).0, RegistryErrorKind::Unknown, "{code}");
            assert_eq!(describe(code, false).0, RegistryErrorKind::Unavailable, "{code}");
        }
        for code in [-102, -114, -115] {
            assert_eq!(describe(code, true).0, RegistryErrorKind::Denied, "{code}");
        }
        assert_eq!(describe(-112, true).0, RegistryErrorKind::Unavailable);
    }

    #[test]
    fn what_depends_on_the_node_is_a_refusal() {
        assert_eq!(refusal(-101), Some(Refusal::NoNode));
        assert_eq!(refusal(-110), Some(Refusal::NodeExists));
        assert_eq!(refusal(-103), Some(Refusal::Changed));
        assert_eq!(refusal(-102), None);
        assert!(ends_session(-112) && !ends_session(-101));
    }
}
