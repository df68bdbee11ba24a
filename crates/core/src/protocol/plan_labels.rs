//! The label changes that the controller makes: permissions, results, and the changes of `service-available` that no
//! consumer's write makes.

use std::borrow::Cow;

use crate::model::keys::Stage;
use crate::model::label_changes::LabelChanges;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;

use super::advance::{changes_to, settle};
use super::checks::{CheckResult, Checks};
use super::gate::available;
use super::objection::Objection;

/// Returns the label changes that the controller makes on `pod`: it grants what `checks` allow, applies every step that
/// follows, so that no webhook is needed, and sets or removes `service-available`.
///
/// A pod that is being deleted, or has not opted in, does not change.
#[must_use]
pub fn plan_labels(pod: &PodView<'_>, checks: &dyn Checks, now: UnixNanos) -> LabelChanges {
    if !pod.is_controlled() || pod.terminating {
        return LabelChanges::default();
    }
    let before = Operations::parse(pod.labels);
    let mut operations = before.clone();
    let nothing_stored = Operations::default();
    settle(&mut operations, &nothing_stored, pod);
    grant(&mut operations, checks, pod.facts.finished);
    settle(&mut operations, &nothing_stored, pod);
    // A pod that is not Ready is not available, whatever the reason is.
    operations.service_available = pod.ready && (operations.service_available || available(pod, &operations));
    changes_to(&before, &operations, pod, now)
}

/// Grants what the checks allow. The result of an operation on a pod that has `finished` is not checked: nobody can do anything
/// about it, and webhooks of rules are not asked any more.
fn grant(operations: &mut Operations<'_>, checks: &dyn Checks, finished: bool) {
    let mut permitted = Vec::new();
    for (id, operation) in &mut operations.by_id {
        let waits_to_start = operation.has(Stage::Operating) && !operation.has(Stage::PreChecked);
        let waits_to_end = operation.has(Stage::PostCheck) && !operation.has(Stage::PostChecked);
        let Some(operation_type) = operation.known_type().map(ToOwned::to_owned) else {
            continue;
        };
        if waits_to_start && checks.pre_check(id, &operation_type) == CheckResult::Pass {
            operation.put(Stage::PreChecked);
            permitted.push(operation_type);
        } else if waits_to_end
            && (finished
                || checks.post_check(id, &operation_type) == CheckResult::Pass
                    && !checks.objections(id, &operation_type).iter().any(Objection::refuses))
        {
            operation.put(Stage::PostChecked);
        }
    }
    operations.permissions.extend(permitted.into_iter().map(Cow::Owned));
}
