//! An operation that a decision changes outside the reviewed write.

/// A run of an operation, for its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedOperation {
    /// The UID of its pod.
    pub pod_uid: String,
    /// Its ID.
    pub id: String,
    /// The run: the value of its label [`podward_core::trace::run_label`].
    pub run: String,
}
