//! The review of cancels.

use crate::model::keys::Stage;
use crate::model::operations::{Operations, UNKNOWN_TYPE};
use crate::model::pod::Pod;

/// Returns a denial for each label `undo-operation-type/<id>` that this write sets and that names another type than that
/// of the operation: it was probably meant for another operation. The type is that of the stored operation, if there is
/// one. Without a known type, any value cancels.
pub(super) fn wrong_cancels(old: Option<&Pod>, new: &Pod) -> Vec<String> {
    let before = old.map(Pod::view);
    let stored = before.as_ref().map(|view| Operations::parse(view.labels)).unwrap_or_default();
    let view = new.view();
    let written = Operations::parse(view.labels);
    let mut denials = Vec::new();
    for (id, operation) in written.iter().filter(|(_, operation)| operation.has(Stage::UndoOperationType)) {
        let key = Stage::UndoOperationType.key(id);
        let named = view.labels.get(&key);
        if before.as_ref().is_some_and(|before| before.labels.get(&key) == named) {
            continue;
        }
        let stored_type = stored.type_of(id);
        let known = stored_type.as_deref().or_else(|| operation.known_type());
        let known = known.filter(|known| *known != UNKNOWN_TYPE);
        if let (Some(named), Some(known)) = (named, known)
            && named != known
        {
            denials.push(format!(
                "failed to validate PodOpsLifecycleWebhook, the label {key} names the type {named:?}, but operation {id} has the type {known:?}; set the label to {known} to cancel the operation"
            ));
        }
    }
    denials
}
