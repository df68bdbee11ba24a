//! What is taken off a pod before Podward goes away: everything that only Podward writes, and would wedge the pod without it.
//!
//! Finalizers keep a deleted pod from going, a gate that is off keeps it from being Ready, and nobody would be there to move either.
//! What others write stays: announcements of operations (which begin anew when Podward comes back), labels that tell a pod to stay
//! offline, finalizers and expectations of third parties.

use std::collections::{BTreeMap, BTreeSet};

use crate::expected::with_consumers;
use crate::hooks::is_hook_finalizer;
use crate::keys::{
    ASKED, AVAILABLE_CONDITIONS, DELETE_OPERATION, DELETE_TIMESTAMP, DELETION_WISH, EVIDENCE, Key,
    POD_DELETION_COST, REFUSED, Stage,
};
use crate::operations::Operations;
use crate::view::{ConditionStatus, PodView};
use crate::wish::{Carried, Intent, Wish, cancel, intent};

/// A pod, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The pod; its facts aren't asked for.
    pub pod: PodView<'a>,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// Whether it has the condition [`LIFECYCLE_CONDITION`](crate::keys::LIFECYCLE_CONDITION).
    pub is_told: bool,
    /// Whether it has run to its end, so that it never gets Ready again.
    pub is_finished: bool,
}

/// What becomes of the finalizers of parties that aren't hooks of Podward. These take them off by themselves, with or without Podward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThirdParties {
    /// They stay.
    #[default]
    Keep,
    /// They go, too: their owner doesn't exist any more.
    Remove,
}

/// What is to be written, in one write, and what people should know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Labels that go.
    pub labels: BTreeSet<String>,
    /// Annotations and their new text; `None` where they go.
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// Finalizers that go.
    pub finalizers: Vec<String>,
    /// Whether the condition behind the readiness gate becomes True.
    pub opens_gate: bool,
    /// Whether the condition [`LIFECYCLE_CONDITION`](crate::keys::LIFECYCLE_CONDITION) goes.
    pub untells: bool,
    /// The wish to delete the pod that is dropped with it: the pod lives on until somebody deletes it again.
    pub dropped_wish: Option<DroppedWish>,
    /// Operations that go on, by id: their operators lose the permission, and the pod is in service again.
    pub interrupted: Vec<String>,
    /// Finalizers of third parties that stay.
    pub third_parties: Vec<String>,
    /// The gate stays off: somebody has told the pod to stay offline.
    pub stays_offline: bool,
}

/// A wish that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedWish {
    /// What was wished; `None` when it could not be read.
    pub wish: Option<Wish>,
}

impl Release {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.annotations.is_empty()
            && self.finalizers.is_empty()
            && !self.opens_gate
            && !self.untells
    }
}

/// What is to be taken off a pod, whether it has opted in or not, so that it lives on without Podward.
///
/// # Guarantees
/// - What others write isn't touched.
/// - Of a pod that it was carried out on, nothing is left to take off.
/// - When Podward comes back, it takes the pod in again as one that it never saw.
#[must_use]
pub fn release(subject: &Subject<'_>, third_parties: ThirdParties) -> Release {
    let pod = &subject.pod;
    let mut release = Release {
        stays_offline: pod.has_gate && pod.stays_offline() && pod.gate != Some(ConditionStatus::True),
        untells: subject.is_told,
        ..Release::default()
    };
    drop_wish(subject, &mut release);
    let operations = Operations::parse(pod.labels);
    for key in pod.labels.keys() {
        if goes(key, &operations) {
            release.labels.insert(key.clone());
        }
    }
    if !pod.terminating && !subject.is_finished {
        let begun = operations.iter().filter(|(_, operation)| {
            operation.is_active() && operation.has_any(&[Stage::PreChecked, Stage::Preparing, Stage::Operate])
        });
        let begun = begun.map(|(id, _)| id.to_owned());
        // Those that go on: neither undone, nor that of a dropped wish.
        release.interrupted =
            begun.filter(|id| !release.labels.contains(&Stage::Operating.key(id))).collect();
        // Nobody turns it on later. But who has told the pod to stay offline is taken at his word.
        release.opens_gate = pod.has_gate && pod.gate != Some(ConditionStatus::True) && !pod.stays_offline();
    }
    for finalizer in pod.protection_finalizers() {
        if is_hook_finalizer(finalizer) || third_parties == ThirdParties::Remove {
            release.finalizers.push(finalizer.to_owned());
        } else {
            release.third_parties.push(finalizer.to_owned());
        }
    }
    let records = [ASKED, EVIDENCE, REFUSED].into_iter().filter(|key| subject.annotations.contains_key(*key));
    release.annotations.extend(records.map(|key| (key, None)));
    // One that can't be read says nothing of who wrote it, and holds nothing up without Podward.
    if let Ok(Some(text)) = with_consumers(pod.available_conditions, []) {
        release.annotations.insert(AVAILABLE_CONDITIONS, text);
    }
    release
}

/// Drops a wish that Podward has recorded, with its operation. A label that asks for the deletion, of somebody who wasn't heard yet,
/// is his, and so is an operation `pod-delete` without a wish.
fn drop_wish(subject: &Subject<'_>, release: &mut Release) {
    let annotation = |key: &str| subject.annotations.get(key).map(String::as_str);
    let text = annotation(DELETION_WISH);
    let wish = text.and_then(Wish::parse);
    let carried = Carried {
        labels: subject.pod.labels,
        wish: wish.as_ref(),
        delete_timestamp: annotation(DELETE_TIMESTAMP),
        deletion_cost: annotation(POD_DELETION_COST),
    };
    if text.is_none() && matches!(intent(&carried), Intent::None | Intent::Begin) {
        return;
    }
    let changes = cancel(&carried);
    release.labels.extend(changes.labels.remove);
    // Nobody would carry out the label that undoes the operation.
    let operation = Stage::ALL.map(|stage| stage.key(DELETE_OPERATION));
    release.labels.extend(operation.into_iter().filter(|key| subject.pod.labels.contains_key(key)));
    let present = |key: &&'static str| subject.annotations.contains_key(*key);
    release.annotations.extend(changes.annotations.into_iter().filter(|(key, _)| present(key)));
    if text.is_some() && !subject.pod.terminating && !subject.is_finished {
        release.dropped_wish = Some(DroppedWish { wish });
    }
}

/// Whether a label is Podward's to take off: what only Podward writes, and all of an operation that its operator has finished or
/// cancelled, as Podward would have done.
fn goes(key: &str, operations: &Operations<'_>) -> bool {
    match Key::parse(key) {
        parsed if parsed.is_protected() => true,
        Key::Stage(_, id) => operations.get(id).is_some_and(|operation| {
            let is_undone = operation.has(Stage::UndoOperationType);
            let is_finished = operation.is_live() && !operation.has(Stage::Operating);
            is_undone || is_finished
        }),
        _ => false,
    }
}
