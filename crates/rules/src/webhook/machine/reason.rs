//! Why a webhook has not let a pod pass.

/// Why a pod has not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookReason {
    /// The sentence for people. It may contain ids that change with each call.
    pub(crate) text: String,
    /// Equal for reasons that differ only in such ids.
    pub(crate) fingerprint: WebhookFingerprint,
}

/// The part of a reason that tells reasons apart. A pod is reconciled again only when the fingerprint changes, because
/// each reconciliation may write to the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WebhookFingerprint {
    /// The call failed with this error.
    CallFailed(String),
    /// The webhook refused, with this message.
    Rejected(String),
    /// A task runs.
    TaskRunning {
        /// Its last message.
        message: String,
        /// The error of its last poll.
        error: Option<String>,
    },
    /// A task ended without approving the pod.
    TaskStopped {
        /// Its last message.
        message: String,
        /// The error of its last poll.
        error: Option<String>,
    },
}
