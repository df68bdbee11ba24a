//! Who is asked about.

use podward_core::UnixNanos;
use sha2::{Digest, Sha256};

/// One time that an operation asks to pass a rule. An answer counts for that time alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    /// The pod's UID: a pod of the same name that comes later is another one.
    pub(crate) uid: String,
    /// The operation's id.
    pub(crate) operation: String,
    /// When it asked: the value of its label, which tells it from an earlier operation with this id.
    pub(crate) asked_at: UnixNanos,
}

/// A pod that waits for a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its name.
    pub(crate) pod: String,
    /// Its UID.
    pub(crate) uid: String,
    /// The id of the operation that asks.
    pub(crate) operation: String,
    /// Tells what is asked from what was asked at other times.
    pub(crate) key: AskingKey,
}

impl Subject {
    pub(crate) fn new(pod: impl Into<String>, asking: &Asking) -> Self {
        let Asking { uid, operation, .. } = asking.clone();
        Self { pod: pod.into(), uid, operation, key: AskingKey::of(asking) }
    }
}

/// Stands for an asking: 16 hex digits of its SHA-256. Short, because the status of a rule has one for each pod of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AskingKey(u64);

impl AskingKey {
    fn of(asking: &Asking) -> Self {
        let mut hash = Sha256::new();
        for part in [asking.uid.as_bytes(), asking.operation.as_bytes(), &asking.asked_at.0.to_be_bytes()] {
            // Lengths keep parts apart.
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// As the status of a rule has it.
    pub(super) fn text(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Reads what [`text`](Self::text) wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex).map(Self)
    }
}
