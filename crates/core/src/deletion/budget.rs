//! Disruption budgets, counted as in the eviction handler of the API server
//! (kubernetes/pkg/registry/core/pod/storage/eviction.go), but before the pod leaves service.
//!
//! Room is reserved as the handler does it: `disruptionsAllowed` decreases by one, and the pod is added to
//! `disruptedPods`. The disruption controller then counts the pod as gone for two minutes (`DeletionTimeout` in
//! kubernetes/pkg/controller/disruption/disruption.go). By then the pod is out of service and not healthy, or the
//! reservation is renewed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::deletion::hold::BUDGET_REFUSAL;
use crate::model::time::UnixNanos;

/// The lifetime of a reservation.
pub const RESERVATION_LASTS: Duration = Duration::from_secs(120);
/// The age at which the reservation of a pod in service is renewed, early enough for clocks that differ a little.
pub const RENEW_AFTER: Duration = Duration::from_secs(90);
/// The number of disrupted pods at which the handler refuses evictions (`MaxDisruptedPodSize`).
const MOST_DISRUPTED: usize = 2000;

/// A budget that selects the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// `status.currentHealthy`.
    pub current_healthy: i32,
    /// `status.desiredHealthy`.
    pub desired_healthy: i32,
    /// `status.disruptedPods`.
    pub disrupted_pods: BTreeMap<String, UnixNanos>,
    /// True if `spec.unhealthyPodEvictionPolicy` is `AlwaysAllow`.
    pub always_allows_unhealthy: bool,
    /// Reason and message of the condition `DisruptionAllowed` when it is `False`.
    pub refusal: Option<(String, String)>,
}

/// The pod to evict.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPod<'a> {
    /// The name.
    pub name: &'a str,
    /// True if the condition `Ready` is `True`.
    pub ready: bool,
    /// True if the pod is Pending, finished or terminating, so that no budget applies.
    pub beyond_budgets: bool,
}

/// The result of the check for room in the budgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionRoom {
    /// No room is needed: no budget selects the pod, or its eviction does not change the budget. That is true only until
    /// the pod is Ready.
    NotNeeded,
    /// A reservation exists since this time and is recent.
    Held(UnixNanos),
    /// Room must be reserved.
    Take(ReservedEviction),
    /// There is no room, with the text of the API server.
    None(String),
}

/// A reservation to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedEviction {
    /// The name of the budget.
    pub budget: String,
    /// The new `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// The new entry of the pod in `status.disruptedPods`.
    pub at: UnixNanos,
}

/// Checks whether `pod` may be evicted under all `budgets` that select it.
///
/// ```
/// use podward_core::UnixNanos;
/// use podward_core::deletion::{DisruptionBudget, EvictionPod, EvictionRoom, eviction_room};
///
/// let budget = DisruptionBudget { name: "web".to_owned(), disruptions_allowed: 1, ..DisruptionBudget::default() };
/// let pod = EvictionPod { name: "web-0", ready: true, beyond_budgets: false };
/// let EvictionRoom::Take(taken) = eviction_room(&[budget.clone()], &pod, UnixNanos(7)) else { panic!() };
/// assert_eq!((taken.disruptions_allowed, taken.at), (0, UnixNanos(7)));
///
/// let full = DisruptionBudget { disruptions_allowed: 0, ..budget };
/// assert!(matches!(eviction_room(&[full], &pod, UnixNanos(7)), EvictionRoom::None(_)));
/// ```
#[must_use]
pub fn eviction_room(budgets: &[DisruptionBudget], pod: &EvictionPod<'_>, now: UnixNanos) -> EvictionRoom {
    if pod.beyond_budgets {
        return EvictionRoom::NotNeeded;
    }
    let budget = match budgets {
        [] => return EvictionRoom::NotNeeded,
        [one] => one,
        _ => {
            return EvictionRoom::None(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                    .to_owned(),
            );
        }
    };
    if !pod.ready && (budget.always_allows_unhealthy || budget.is_met()) {
        return EvictionRoom::NotNeeded;
    }
    if let Some(since) = budget.disrupted_pods.get(pod.name) {
        let age = now.since(*since);
        if age < RENEW_AFTER {
            return EvictionRoom::Held(*since);
        }
        if age < RESERVATION_LASTS {
            // The reservation is still valid: only its time is renewed.
            return EvictionRoom::Take(budget.take(budget.disruptions_allowed.max(0), now));
        }
    }
    if let Some(refusal) = budget.refuses() {
        return EvictionRoom::None(refusal);
    }
    EvictionRoom::Take(budget.take(budget.disruptions_allowed - 1, now))
}

/// Returns whether a pod whose eviction the API server refused may be deleted instead: the pod is out of service, and
/// `budgets` are met without it. The handler refuses such a pod when a budget wants no healthy pods.
#[must_use]
pub fn still_covers(budgets: &[DisruptionBudget], pod: &EvictionPod<'_>) -> bool {
    match budgets {
        [] => true,
        [budget] => {
            let is_observed = budget.observed_generation >= budget.generation;
            !pod.ready && is_observed && budget.current_healthy >= budget.desired_healthy
        }
        _ => false,
    }
}

impl DisruptionBudget {
    /// Returns whether enough pods are healthy, so that an unhealthy pod may be evicted.
    fn is_met(&self) -> bool {
        self.current_healthy >= self.desired_healthy && self.desired_healthy > 0
    }

    fn take(&self, disruptions_allowed: i32, at: UnixNanos) -> ReservedEviction {
        ReservedEviction { budget: self.name.clone(), disruptions_allowed, at }
    }

    fn refuses(&self) -> Option<String> {
        let name = &self.name;
        if self.observed_generation < self.generation {
            return Some(format!(
                "{BUDGET_REFUSAL} The disruption budget {name} is still being processed by the server."
            ));
        }
        if self.disruptions_allowed < 0 {
            return Some(format!(
                "{BUDGET_REFUSAL} The disruption budget {name} allows fewer than no disruptions."
            ));
        }
        if self.disrupted_pods.len() > MOST_DISRUPTED {
            return Some(format!(
                "{BUDGET_REFUSAL} The disruption budget {name} has too many evictions that are not confirmed yet."
            ));
        }
        if self.disruptions_allowed > 0 {
            return None;
        }
        let cause = match &self.refusal {
            Some((reason, message)) if reason == "SyncFailed" && !message.is_empty() => {
                format!("does not allow evicting pods currently because it failed sync: {message}")
            }
            _ if self.current_healthy <= self.desired_healthy => format!(
                "needs {} healthy pods and has {} currently",
                self.desired_healthy, self.current_healthy
            ),
            Some((reason, message)) if !message.is_empty() => {
                format!("does not allow evicting pods currently ({reason}): {message}")
            }
            _ => "does not allow evicting pods currently".to_owned(),
        };
        Some(format!("{BUDGET_REFUSAL} The disruption budget {name} {cause}"))
    }
}
