//! The explanation of a pod after a plan is carried out.

use crate::hooks::PodPlan;
use crate::model::view::{PodFacts, PodView};
use crate::protocol::checks::Checks;

use super::pod::{Explanation, explain};

impl PodPlan {
    /// Returns what `pod` waits for after this plan is carried out; see [`explain`](crate::explain).
    #[must_use]
    pub fn explain(&self, pod: &PodView<'_>, checks: &dyn Checks) -> Explanation {
        let mut labels = pod.labels.clone();
        self.labels.apply(&mut labels);
        let mut finalizers = pod.finalizers.to_vec();
        self.finalizers.apply(&mut finalizers);
        let available_conditions = self.expected.as_deref();
        let gate = self.gate.or(pod.gate);
        let facts = PodFacts { result_refused: self.refusals.as_deref(), ..pod.facts };
        let after =
            PodView { labels: &labels, finalizers: &finalizers, available_conditions, gate, facts, ..*pod };
        explain(&after, checks, &self.open)
    }
}
