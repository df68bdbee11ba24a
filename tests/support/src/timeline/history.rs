//! The recorded history of a pod.

use std::collections::BTreeSet;

use super::version::PodVersion;

/// The recorded history of one pod.
#[derive(Clone, Debug)]
pub struct PodHistory {
    /// The pod's name.
    pub name: String,
    /// Its UID. A pod that is created again under the same name has a history of its own.
    pub uid: String,
    /// The observed versions, in order.
    pub versions: Vec<PodVersion>,
    /// The indexes of versions before which others may be missing, because the watch was interrupted.
    pub after_gaps: BTreeSet<usize>,
    /// The time at which the object was gone, in milliseconds since the timeline started.
    pub gone_ms: Option<f64>,
}

impl PodHistory {
    /// Returns the first recorded version of the pod while it is being deleted.
    #[must_use]
    pub fn deletion(&self) -> Option<&PodVersion> {
        self.versions.iter().find(|version| version.terminating)
    }

    /// Returns the consumers that held the pod when its deletion began. Empty if the pod had ended, because it then has
    /// no requests in flight, and nobody has to wait.
    #[must_use]
    pub fn held_when_deleted(&self) -> &[String] {
        self.deletion().filter(|version| !version.ended).map_or(&[], |version| &version.holders)
    }

    /// Returns whether the record contains this version, or the pod is gone. The versions of a pod arrive in order,
    /// and every stored version arrives.
    pub(super) fn has_reached(&self, version: &str) -> bool {
        self.gone_ms.is_some() || self.versions.iter().rev().any(|seen| seen.resource_version == version)
    }
}
