//! The change that a call makes to a pod.

use podward_core::LabelChanges;

/// The change of a pod that a call decided on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodChange {
    /// The pod is already in the requested state.
    None,
    /// Label changes; not empty.
    Labels(LabelChanges),
    /// Annotations; not empty. `None` removes the annotation.
    Annotations(Vec<(&'static str, Option<String>)>),
}
