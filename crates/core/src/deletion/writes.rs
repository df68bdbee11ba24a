//! Writes to pods that need more than the right to update pods: those that lead to the deletion of the pod, and those
//! that allow a delete without draining. Also writes that an event must record with the name of the writer.
//!
//! Only opted-in pods count. So a write that opts a pod in needs the rights for the marks that the pod already has.

use crate::model::keys::TO_DELETE;
use crate::model::operations::Operations;
use crate::model::pod::Pod;

/// A mark on a pod that leads to its deletion by Podward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionMark {
    /// The label [`TO_DELETE`]. Clients of KusionStack write it.
    Label,
    /// The annotation [`DELETION_REQUEST`](crate::keys::DELETION_REQUEST). Only Podward writes it.
    Request,
}

impl DeletionMark {
    /// Returns the mark as messages name it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            DeletionMark::Label => "the label collaset.kusionstack.io/to-delete",
            DeletionMark::Request => "the annotation podward.io/deletion-request",
        }
    }

    fn value(self, pod: &Pod) -> Option<&str> {
        match self {
            DeletionMark::Label => pod.metadata.labels.as_ref()?.get(TO_DELETE).map(String::as_str),
            DeletionMark::Request => pod.metadata.annotations.deletion_request.as_deref(),
        }
    }
}

/// Returns the marks with which the write of `new` leads to the deletion of the pod: those that it adds or changes, and
/// all marks of a pod that it opts in. `old` is `None` on CREATE.
///
/// Other labels and annotations do not lead to a deletion. The operation `pod-delete` without a mark belongs to another
/// operator, which deletes the pod itself and needs the right to do so.
///
/// ```
/// use podward_core::Pod;
/// use podward_core::deletion::writes::{DeletionMark, leads_to_deletion};
/// use serde_json::json;
///
/// let pod = |labels| serde_json::from_value::<Pod>(json!({"metadata": {"labels": labels}})).unwrap();
/// let plain = pod(json!({"kusionstack.io/control": "true"}));
/// let marked = pod(json!({"kusionstack.io/control": "true", "collaset.kusionstack.io/to-delete": "1"}));
/// assert_eq!(leads_to_deletion(Some(&plain), &marked), [DeletionMark::Label]);
/// assert!(leads_to_deletion(Some(&marked), &marked).is_empty());
/// assert!(leads_to_deletion(Some(&marked), &plain).is_empty());
/// ```
#[must_use]
pub fn leads_to_deletion(old: Option<&Pod>, new: &Pod) -> Vec<DeletionMark> {
    let marks = [DeletionMark::Label, DeletionMark::Request];
    marks.into_iter().filter(|mark| is_new(old, new, |pod| mark.value(pod).map(str::to_owned))).collect()
}

/// Returns whether the write of `new` allows a delete without draining: it adds or changes the annotation
/// [`BREAK_GLASS`](crate::keys::BREAK_GLASS), or opts a pod in that has it. `old` is `None` on CREATE.
#[must_use]
pub fn breaks_glass(old: Option<&Pod>, new: &Pod) -> bool {
    // A hold ignores an annotation without a reason.
    let reason =
        |pod: &Pod| pod.metadata.annotations.break_glass.as_deref().map(str::trim).map(str::to_owned);
    is_new(old, new, |pod| reason(pod).filter(|reason| !reason.is_empty()))
}

/// Returns whether `new` is opted in and has a value that `old` does not have, or did not have while it was opted in.
fn is_new<T: PartialEq>(old: Option<&Pod>, new: &Pod, value: impl Fn(&Pod) -> Option<T>) -> bool {
    let effective = |pod: &Pod| if pod.view().is_controlled() { value(pod) } else { None };
    let written = effective(new);
    written.is_some() && old.and_then(effective) != written
}

/// Returns what a write that opts a pod out leaves behind: the operations and the deletion that are under way, as text.
/// `None` if the write does not opt the pod out, or nothing is under way.
#[must_use]
pub fn opts_out_during(old: &Pod, new: &Pod) -> Option<String> {
    let view = old.view();
    if !view.is_controlled() || new.view().is_controlled() || view.terminating {
        return None;
    }
    let deletion =
        [DeletionMark::Label, DeletionMark::Request].into_iter().any(|mark| mark.value(old).is_some());
    let operations = Operations::parse(view.labels);
    let ids: Vec<&str> =
        operations.iter().filter(|(_, operation)| operation.is_live()).map(|(id, _)| id).collect();
    match (deletion, ids.is_empty()) {
        (false, true) => None,
        (true, true) => Some("its deletion is requested".to_owned()),
        (true, false) => {
            Some(format!("its deletion is requested, and these operations run: {}", ids.join(", ")))
        }
        (false, false) => Some(format!("these operations run: {}", ids.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::keys::{BREAK_GLASS, CONTROL_LABEL, DELETION_REQUEST, Stage};

    fn pod(labels: Value, annotations: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"labels": labels, "annotations": annotations}})).unwrap()
    }

    #[test]
    fn every_way_to_mark_a_pod_for_deletion_is_found() {
        let plain = pod(json!({CONTROL_LABEL: "true"}), json!({}));
        let label = pod(json!({CONTROL_LABEL: "true", TO_DELETE: "1"}), json!({}));
        let other = pod(json!({CONTROL_LABEL: "true", TO_DELETE: "2"}), json!({}));
        let request = pod(json!({CONTROL_LABEL: "true"}), json!({DELETION_REQUEST: "{}"}));
        let both = pod(json!({CONTROL_LABEL: "true", TO_DELETE: "1"}), json!({DELETION_REQUEST: "{}"}));
        let out = pod(json!({TO_DELETE: "1"}), json!({DELETION_REQUEST: "{}"}));
        use DeletionMark::{Label, Request};
        for (old, new, marks) in [
            (None, &plain, vec![]),
            (None, &both, vec![Label, Request]),
            (Some(&plain), &label, vec![Label]),
            // A new value begins a cancelled deletion again.
            (Some(&label), &other, vec![Label]),
            (Some(&plain), &request, vec![Request]),
            (Some(&label), &both, vec![Request]),
            (Some(&both), &label, vec![]),
            (Some(&both), &out, vec![]),
            // The marks of a pod count from when it is opted in.
            (Some(&plain), &out, vec![]),
            (None, &out, vec![]),
            (Some(&out), &both, vec![Label, Request]),
        ] {
            assert_eq!(leads_to_deletion(old, new), marks, "{old:?} {new:?}");
        }
    }

    #[test]
    fn break_glass_counts_from_when_the_pod_is_opted_in() {
        let glass = |labels: Value, reason: &str| pod(labels, json!({BREAK_GLASS: reason}));
        let plain = pod(json!({CONTROL_LABEL: "true"}), json!({}));
        let set = glass(json!({CONTROL_LABEL: "true"}), "INC-7");
        let out = glass(json!({}), "INC-7");
        assert!(
            breaks_glass(Some(&plain), &set) && breaks_glass(None, &set) && breaks_glass(Some(&out), &set)
        );
        assert!(breaks_glass(Some(&set), &glass(json!({CONTROL_LABEL: "true"}), "INC-8")));
        for (old, new) in [(&set, &set), (&set, &plain), (&plain, &out)] {
            assert!(!breaks_glass(Some(old), new));
        }
        assert!(!breaks_glass(Some(&plain), &glass(json!({CONTROL_LABEL: "true"}), " ")));
    }

    #[test]
    fn an_opt_out_is_notable_while_something_is_under_way() {
        let plain = pod(json!({CONTROL_LABEL: "true"}), json!({}));
        let out = pod(json!({}), json!({}));
        let (begun, kind) = (Stage::Operating.key("upgrade"), Stage::OperationType.key("upgrade"));
        let operating = pod(json!({CONTROL_LABEL: "true", begun: "1", kind: "update"}), json!({}));
        let held = pod(json!({CONTROL_LABEL: "true", TO_DELETE: "1"}), json!({}));
        assert_eq!(opts_out_during(&plain, &out), None);
        assert_eq!(opts_out_during(&held, &held), None);
        assert!(opts_out_during(&operating, &out).unwrap().contains("upgrade"));
        assert!(opts_out_during(&held, &out).unwrap().contains("deletion"));
    }
}
