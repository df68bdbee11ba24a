//! Disruption budgets, counted as the API server's eviction handler counts them
//! (kubernetes/pkg/registry/core/pod/storage/eviction.go), but before the pod is taken out of service.
//!
//! Room is *taken* as the handler takes it: `disruptionsAllowed` goes down by one and the pod goes into `disruptedPods`. The
//! disruption controller then counts the pod as gone, for two minutes (`DeletionTimeout` in
//! kubernetes/pkg/controller/disruption/disruption.go); by then the pod is out of service, hence not healthy, or room is taken anew.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hold::BUDGET_REFUSAL;
use crate::time::UnixNanos;

/// How long room that was taken counts.
pub const RESERVATION_LASTS: Duration = Duration::from_secs(120);
/// When it is taken anew for a pod that is still in service: well before it ends, also by a clock that is a little off.
pub const RENEW_AFTER: Duration = Duration::from_secs(90);
/// More disrupted pods than this the handler doesn't take (`MaxDisruptedPodSize`).
const MOST_DISRUPTED: usize = 2000;

/// A budget that selects the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
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
    /// Whether `spec.unhealthyPodEvictionPolicy` is `AlwaysAllow`.
    pub always_allows_unhealthy: bool,
    /// Reason and message of the condition `DisruptionAllowed`, where it is `False`.
    pub refusal: Option<(String, String)>,
}

/// The pod that is to be evicted.
#[derive(Clone, Copy, Debug)]
pub struct Evictee<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// Whether it is Pending, has run to its end, or is terminating: no budget counts then.
    pub beyond_budgets: bool,
}

/// Whether there is room for an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// It needs none: no budget selects the pod, or the pod's going makes no difference to it.
    NotNeeded,
    /// It was taken before, not long ago.
    Held,
    /// It is to be taken.
    Take(Taken),
    /// There is none: the text that the API server has for it.
    None(String),
}

/// Room to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The budget.
    pub budget: String,
    /// The new `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// The new entry of the pod in `status.disruptedPods`.
    pub at: UnixNanos,
}

/// Judges whether `pod` can be evicted, by all `budgets` that select it.
///
/// ```
/// use podward_core::UnixNanos;
/// use podward_core::deletion::{Budget, Evictee, Room, room};
///
/// let budget = Budget { name: "web".to_owned(), disruptions_allowed: 1, ..Budget::default() };
/// let pod = Evictee { name: "web-0", ready: true, beyond_budgets: false };
/// let Room::Take(taken) = room(&[budget.clone()], &pod, UnixNanos(7)) else { panic!() };
/// assert_eq!((taken.disruptions_allowed, taken.at), (0, UnixNanos(7)));
///
/// let full = Budget { disruptions_allowed: 0, ..budget };
/// assert!(matches!(room(&[full], &pod, UnixNanos(7)), Room::None(_)));
/// ```
#[must_use]
pub fn room(budgets: &[Budget], pod: &Evictee<'_>, now: UnixNanos) -> Room {
    if pod.beyond_budgets {
        return Room::NotNeeded;
    }
    let budget = match budgets {
        [] => return Room::NotNeeded,
        [one] => one,
        _ => {
            return Room::None(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                    .to_owned(),
            );
        }
    };
    if !pod.ready && (budget.always_allows_unhealthy || budget.is_met()) {
        return Room::NotNeeded;
    }
    if let Some(since) = budget.disrupted_pods.get(pod.name) {
        let age = now.since(*since);
        if age < RENEW_AFTER {
            return Room::Held;
        }
        if age < RESERVATION_LASTS {
            // It counts still: only its time is to be renewed.
            return Room::Take(budget.take(budget.disruptions_allowed.max(0), now));
        }
    }
    if let Some(refusal) = budget.refuses() {
        return Room::None(refusal);
    }
    Room::Take(budget.take(budget.disruptions_allowed - 1, now))
}

/// Whether an eviction that the API server has refused does no harm all the same: the pod is out of service, and `budgets` are met
/// without it. The handler refuses such a pod where a budget wants no healthy pods at all.
#[must_use]
pub fn still_covers(budgets: &[Budget], pod: &Evictee<'_>) -> bool {
    match budgets {
        [] => true,
        [budget] => {
            let is_observed = budget.observed_generation >= budget.generation;
            !pod.ready && is_observed && budget.current_healthy >= budget.desired_healthy
        }
        _ => false,
    }
}

impl Budget {
    /// Whether as many pods are healthy as are to be, so that one that isn't may go.
    fn is_met(&self) -> bool {
        self.current_healthy >= self.desired_healthy && self.desired_healthy > 0
    }

    fn take(&self, disruptions_allowed: i32, at: UnixNanos) -> Taken {
        Taken { budget: self.name.clone(), disruptions_allowed, at }
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
