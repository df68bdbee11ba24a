//! The delay until a failed reconciliation is retried.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use podward_kube_util::{ApiError, PodKey};
use podward_runtime::retry::{delay_after, jittered};

/// The delay after a conflict. The watch usually delivers the other write sooner.
const CONFLICT_DELAY: Duration = Duration::from_millis(250);
/// The delay after a write that RBAC or an admission policy rejected.
const REFUSED_DELAY: Duration = Duration::from_secs(30);
/// The first and the longest delay after other failures.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The number of consecutive failures of each pod. An entry exists only while a pod fails.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    failures: Mutex<HashMap<PodKey, u32>>,
}

impl Retries {
    /// Counts a failure and returns the delay until the next attempt. Delays have jitter.
    pub(crate) fn failed(&self, pod: &PodKey, error: &ApiError) -> Duration {
        let failures = {
            let mut failures = self.failures.lock();
            let count = failures.entry(pod.clone()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        match error {
            ApiError::Conflict { .. } | ApiError::Gone { .. } => {
                delay_after(jittered(CONFLICT_DELAY, CONFLICT_DELAY), 1)
            }
            ApiError::Refused { .. } => delay_after(jittered(REFUSED_DELAY, REFUSED_DELAY), 1),
            ApiError::Api { .. } | ApiError::TimedOut { .. } => {
                delay_after(jittered(FIRST_DELAY, LONGEST_DELAY), failures)
            }
        }
    }

    /// Resets the count of `pod`.
    pub(crate) fn succeeded(&self, pod: &PodKey) {
        self.failures.lock().remove(pod);
    }

    /// Forgets the pods that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&PodKey) -> bool) {
        self.failures.lock().retain(|pod, _| exists(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_until_a_success() {
        let (retries, pod) =
            (Retries::default(), PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() });
        let error = ApiError::TimedOut { what: "read", pod: pod.clone(), after: Duration::from_secs(1) };
        let mut nominal = FIRST_DELAY;
        for _ in 0..10 {
            let delay = retries.failed(&pod, &error);
            assert!(delay >= nominal / 2 && delay <= nominal, "{delay:?} of {nominal:?}");
            nominal = (nominal * 2).min(LONGEST_DELAY);
        }
        retries.succeeded(&pod);
        assert!(retries.failed(&pod, &error) <= FIRST_DELAY);
        let conflict = ApiError::Conflict { what: "write", pod: pod.clone() };
        assert!(retries.failed(&pod, &conflict) <= CONFLICT_DELAY);
        retries.retain(|_| false);
        assert!(retries.failures.lock().is_empty());
    }
}
