//! The wish that a pod be deleted: who wished it, when and how. It is kept on the pod, in the annotation
//! [`DELETION_WISH`], until the pod is gone or the wish is taken back.
//!
//! With it go the label [`TO_DELETE`], by whose removal anybody can take it back, and the operation [`DELETE_OPERATION`]. [`record`]
//! and [`cancel`] give what is to be written, [`intent`] reads what stands there; whoever writes wishes does it by these.

mod changes;
mod intent;

use serde::{Deserialize, Serialize};

use crate::time::UnixNanos;

pub(crate) use changes::CHEAPEST;
pub use changes::{Changes, begin, cancel, put_off, raise, record};
pub use intent::{CancelledBy, Intent, intent};

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
    /// When room in the disruption budget was last taken for it, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_at: Option<i64>,
    /// The pod's [`POD_DELETION_COST`](crate::keys::POD_DELETION_COST) before it was set with the wish, to be put back by a cancel;
    /// `Some("")` when it had none, `None` when the wish did not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_before: Option<String>,
    /// The wish was put off: it is taken up again at this time, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
    /// How often it was put off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub times_put_off: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the shape that serde asks for
fn is_zero(number: &u32) -> bool {
    *number == 0
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
            reserved_at: None,
            cost_before: None,
            not_before: None,
            times_put_off: 0,
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

    /// What becomes of `self`, which stands on the pod, when `new` is wished too; `None` when it stays as it is.
    ///
    /// The stronger counts: a delete over an eviction, and what somebody asked for over what the workload's numbers decide. A
    /// workload that wishes what others wished already changes nothing.
    #[must_use]
    pub fn joined_by(&self, new: &Wish) -> Option<Wish> {
        let raises = self.kind == DeletionKind::Evict && new.kind == DeletionKind::Delete;
        let takes_over = self.by_workload && new.kind == DeletionKind::Delete;
        if new.by_workload || !(raises || takes_over) {
            return None;
        }
        Some(Wish {
            cost_before: self.cost_before.clone(),
            reserved_at: self.reserved_at,
            requested_at: self.requested_at,
            ..new.clone()
        })
    }
}

/// What a pod carries of a wish.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// `metadata.labels`.
    pub labels: &'a std::collections::BTreeMap<String, String>,
    /// The wish, if the annotation can be read.
    pub wish: Option<&'a Wish>,
    /// The annotation [`DELETE_TIMESTAMP`](crate::keys::DELETE_TIMESTAMP).
    pub delete_timestamp: Option<&'a str>,
    /// The annotation [`POD_DELETION_COST`](crate::keys::POD_DELETION_COST).
    pub deletion_cost: Option<&'a str>,
}
