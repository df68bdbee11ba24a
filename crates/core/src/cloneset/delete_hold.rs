//! Deletions of pods by others than their CloneSet wait for its hook `preDelete`, too.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::deletion_request::is_cleaner;

const KIND: &str = "CloneSet";

/// The markers that must leave a pod before others delete it. The set stores them in the annotation
/// [`DELETE_HOLD`](super::keys::DELETE_HOLD) of the pod. Members that a later version has added do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteHold {
    /// The name of the set.
    pub set: String,
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The finalizers.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub finalizers: BTreeSet<String>,
}

impl DeleteHold {
    /// Reads the text of the annotation. A text that cannot be read holds nothing.
    ///
    /// ```
    /// use podward_core::cloneset::DeleteHold;
    ///
    /// let hold = DeleteHold { set: "web".to_owned(), ..DeleteHold::default() };
    /// assert_eq!(DeleteHold::parse(&hold.text()), Some(hold));
    /// assert_eq!(DeleteHold::parse("web"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the annotation.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the hold in `text` on a pod whose controller has this kind and name. `None` if another set has stored it:
    /// nobody asks the hook of that set any more.
    #[must_use]
    pub fn on(text: &str, kind: &str, name: &str) -> Option<Self> {
        Self::parse(text).filter(|hold| kind == KIND && name == hold.set)
    }

    /// Returns why a deletion that `requester` has requested waits, for people. `None` if it does not wait: nobody moves a
    /// pod to PreparingDelete whose set or namespace is gone.
    #[must_use]
    pub fn waits(
        &self,
        labels: &BTreeMap<String, String>,
        finalizers: &[String],
        requester: &str,
    ) -> Option<String> {
        let left = self.labels.iter().filter(|(key, value)| labels.get(*key) == Some(value));
        let left = left.map(|(key, value)| format!("the label {key}={value}"));
        let finalizers = self.finalizers.iter().filter(|it| finalizers.contains(it));
        let left: Vec<String> = left.chain(finalizers.map(|it| format!("the finalizer {it}"))).collect();
        let waits = !left.is_empty() && !is_cleaner(requester);
        waits.then(|| {
            format!(
                "the hook preDelete of CloneSet {} has to release the pod: its operator removes {}",
                self.set,
                left.join(" and ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_are_left_hold_the_deletion() {
        let one = |text: &str| BTreeMap::from([(text.to_owned(), "true".to_owned())]);
        let hold = DeleteHold {
            set: "web".to_owned(),
            labels: one("in-use"),
            finalizers: ["example.com/in-use".to_owned()].into(),
        };
        let finalizers = ["example.com/in-use".to_owned()];
        assert_eq!(
            hold.waits(&one("in-use"), &finalizers, "jane").unwrap(),
            "the hook preDelete of CloneSet web has to release the pod: its operator removes the label in-use=true and \
             the finalizer example.com/in-use"
        );
        assert!(hold.waits(&one("in-use"), &[], "jane").is_some());
        assert!(hold.waits(&one("other"), &finalizers, "jane").is_some());
        assert_eq!(hold.waits(&one("other"), &[], "jane"), None);
        // The owner of the pod is gone.
        assert_eq!(hold.waits(&one("in-use"), &finalizers, "system:kube-controller-manager"), None);
    }
}
