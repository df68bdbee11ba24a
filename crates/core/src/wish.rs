//! The wish that a pod be deleted: who wished it, when and how. It is kept on the pod, in the annotation
//! [`DELETION_WISH`](crate::keys::DELETION_WISH), until the pod is gone or the wish is taken back.

use serde::{Deserialize, Serialize};

use crate::time::UnixNanos;

/// How a pod is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionKind {
    /// Deleted.
    Delete,
    /// Evicted: disruption budgets count.
    Evict,
}

impl DeletionKind {
    /// For sentences and metrics: `deletion` or `eviction`.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            DeletionKind::Delete => "deletion",
            DeletionKind::Evict => "eviction",
        }
    }
}

/// A wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    /// How.
    pub kind: DeletionKind,
    /// User name of who wished it.
    pub requested_by: String,
    /// When, in nanoseconds since the Unix epoch.
    pub requested_at: i64,
    /// The grace period asked for, in seconds; the pod's own when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// Whether the pod's workload wished it itself (scale-in, rolling update), so that its numbers decide.
    #[serde(default)]
    pub by_workload: bool,
}

impl Wish {
    /// A wish of `requested_by`, with the pod's own grace period.
    #[must_use]
    pub fn new(kind: DeletionKind, requested_by: &str, at: UnixNanos) -> Self {
        Wish {
            kind,
            requested_by: requested_by.to_owned(),
            requested_at: at.0,
            grace_period_seconds: None,
            by_workload: false,
        }
    }

    /// Reads the annotation's text. `None` when it isn't a wish.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The annotation's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
