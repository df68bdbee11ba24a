//! The outcome of a dry run.

/// The outcome of creating a pod as a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// The pod would have been created.
    Created {
        /// True if the pod got the readiness gate of the mutating webhook.
        gated: bool,
    },
    /// The pod was refused, with the message of the API server.
    Refused(String),
}
