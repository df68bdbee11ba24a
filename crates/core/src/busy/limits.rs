//! The annotation [`BUSY_LIMITS`]: the end of each wait for a busy pod.
//!
//! Only the lifecycle-controller knows the maximum time of a wait. It records the ends for other programs.

use std::collections::BTreeMap;

use crate::model::keys::BUSY_LIMITS;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;

/// The time at which each operation stops waiting for its busy pod, by operation id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyLimits(BTreeMap<String, UnixNanos>);

impl BusyLimits {
    /// Reads the annotation of `pod`. An unreadable annotation counts as empty, and an unreadable time as unknown.
    #[must_use]
    pub fn of(pod: &PodView<'_>) -> Self {
        let text = pod.facts.busy_limits.unwrap_or_default();
        let stored: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
        stored.into_iter().filter_map(|(id, time)| Some((id, UnixNanos::parse(&time)?))).collect()
    }

    /// Returns the time at which the operation `id` stops waiting; `None` if it is not known.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<UnixNanos> {
        self.0.get(id).copied()
    }

    /// Returns the annotation to write on `pod` with its condition, and its value: `None` removes it. Returns no change
    /// if the value is already stored.
    #[must_use]
    pub fn change(&self, pod: &PodView<'_>) -> Option<(&'static str, Option<String>)> {
        let limits: BTreeMap<&str, String> =
            self.0.iter().map(|(id, limit)| (id.as_str(), limit.to_rfc3339())).collect();
        let text = (!limits.is_empty()).then(|| serde_json::json!(limits).to_string());
        (text.as_deref() != pod.facts.busy_limits).then_some((BUSY_LIMITS, text))
    }
}

impl FromIterator<(String, UnixNanos)> for BusyLimits {
    fn from_iter<T: IntoIterator<Item = (String, UnixNanos)>>(limits: T) -> Self {
        BusyLimits(limits.into_iter().collect())
    }
}
