//! Markers that the set itself has put back on a pod.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The markers of the `inPlaceUpdate` hook that the set has put back on a pod whose last update the hook has not confirmed. The
/// set stores them in the annotation [`REARMED`](super::keys::REARMED) of the pod, because others may be those of operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PutBack {
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The finalizers.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub finalizers: BTreeSet<String>,
}

impl PutBack {
    /// Reads the text of the annotation. One that cannot be read names no marker.
    ///
    /// ```
    /// use podward_core::cloneset::PutBack;
    ///
    /// let put_back = PutBack { finalizers: ["example.com/in-use".to_owned()].into(), ..PutBack::default() };
    /// assert_eq!(PutBack::parse(&put_back.text()), put_back);
    /// assert!(PutBack::parse("true").is_unknown());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the text of the annotation.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns true if it is not known which markers were put back: there was at least one.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.labels.is_empty() && self.finalizers.is_empty()
    }

    /// Returns those that a pod with these labels and finalizers still has.
    #[must_use]
    pub fn left(mut self, labels: &BTreeMap<String, String>, finalizers: &[String]) -> Self {
        self.labels.retain(|key, value| labels.get(key) == Some(value));
        self.finalizers.retain(|it| finalizers.contains(it));
        self
    }
}
