//! The history in the patches of the mutating-webhook.

use json_patch::Patch;

use super::{LabelWrite, record};
use crate::model::keys::HISTORY;
use crate::model::label_changes::{apply_to_labels, remove, set_annotation};
use crate::model::pod::Pod;
use crate::model::time::UnixNanos;

/// Extends `patch`, the changes of the webhook for a write of `writer` that leads from `old` to `new`, with the history.
/// `old` is `None` if the pod is created: a copy of the manifest of another pod loses its history.
///
/// A write that changes the history itself is left alone. A write that removes it, such as one of a client that applies
/// a manifest without it, gets it back.
#[must_use]
pub fn with_history(patch: Patch, old: Option<&Pod>, new: &Pod, writer: &str, now: UnixNanos) -> Patch {
    let Patch(mut operations) = patch;
    let written = new.metadata.annotations.history.as_deref();
    let Some(old) = old else {
        operations.extend(written.map(|_| remove(&["metadata", "annotations", HISTORY])));
        return Patch(operations);
    };
    let stored = old.metadata.annotations.history.as_deref();
    if !new.view().is_controlled() || (written.is_some() && written != stored) {
        return Patch(operations);
    }
    let mut after = new.view().labels.clone();
    apply_to_labels(&operations, &mut after);
    let write = LabelWrite {
        before: old.view().labels,
        after: &after,
        history: stored,
        evidence: old.metadata.annotations.evidence.as_deref(),
        writer: Some(writer),
        now,
    };
    let wanted = record(&write).or_else(|| stored.map(ToOwned::to_owned));
    if let Some(text) = wanted.filter(|text| written != Some(text)) {
        set_annotation(&mut operations, new.metadata.annotations.present, HISTORY, text);
    }
    Patch(operations)
}
