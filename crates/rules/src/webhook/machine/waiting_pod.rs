//! The pods that wait for a webhook.

use podward_core::UnixNanos;
use sha2::{Digest, Sha256};

/// A pod that waits for a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingPod {
    pub(crate) name: String,
    /// The pod's UID: a later pod with the same name is another one.
    pub(crate) uid: String,
    /// The id of the operation that waits.
    pub(crate) operation: String,
    /// Identifies the check request.
    pub(crate) key: CheckKey,
}

impl WaitingPod {
    /// Returns the pod `name`, whose `operation` began to wait at `requested_at`. That time is the value of the
    /// operation's label, which distinguishes it from an earlier operation with the same id.
    pub(crate) fn new(
        name: impl Into<String>,
        uid: impl Into<String>,
        operation: impl Into<String>,
        requested_at: UnixNanos,
    ) -> Self {
        let (uid, operation) = (uid.into(), operation.into());
        let key = CheckKey::of(&uid, &operation, requested_at);
        Self { name: name.into(), uid, operation, key }
    }
}

/// Identifies a check request of one pod: the first 8 bytes of a SHA-256. An answer counts for one check request only.
/// The key is short because the status of a rule contains one for each pod of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CheckKey(u64);

impl CheckKey {
    fn of(uid: &str, operation: &str, requested_at: UnixNanos) -> Self {
        let mut hash = Sha256::new();
        for part in [uid.as_bytes(), operation.as_bytes(), &requested_at.0.to_be_bytes()] {
            // The length separates the parts.
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// Returns the key as 16 hex digits, as the status of a rule contains it.
    pub(super) fn text(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Parses the output of [`text`](Self::text). Returns `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex).map(Self)
    }
}
