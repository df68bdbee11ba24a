//! The metric for the age of the oldest operation in each phase.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use podward_core::{OperationPhase, UnixNanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The phases whose start is stored on the pod, in the value of a label.
const PHASES: [OperationPhase; 5] = [
    OperationPhase::PreChecking,
    OperationPhase::Preparing,
    OperationPhase::Operating,
    OperationPhase::PostChecking,
    OperationPhase::Completing,
];

/// The number of operations by phase and start time. The order makes the oldest operation the first entry of its phase.
/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct OldestOperations(Arc<Mutex<BTreeMap<OperationPhase, BTreeMap<i64, usize>>>>);

impl OldestOperations {
    /// Adds an operation that entered `phase` at `since`, in nanoseconds since the Unix epoch.
    pub(super) fn entered(&self, phase: OperationPhase, since: Option<i64>) {
        if let Some(since) = since {
            *self.0.lock().entry(phase).or_default().entry(since).or_default() += 1;
        }
    }

    /// Removes an operation that entered `phase` at `since`.
    pub(super) fn left(&self, phase: OperationPhase, since: Option<i64>) {
        let mut phases = self.0.lock();
        let Some((since, times)) = since.zip(phases.get_mut(&phase)) else { return };
        if let Some(count) = times.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                times.remove(&since);
            }
        }
    }

    /// Removes all operations.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    fn seconds(&self, phase: OperationPhase, now: UnixNanos) -> f64 {
        let phases = self.0.lock();
        let first = phases.get(&phase).and_then(|times| times.keys().next().copied());
        first.map_or(0.0, |since| now.0.saturating_sub(since).max(0) as f64 / 1e9)
    }
}

impl Collector for OldestOperations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = podward_kube_util::now();
        let mut encoder = encoder.encode_descriptor(
            "operation_oldest",
            "Age of the oldest operation in a phase; 0 if there is none",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for phase in PHASES {
            let gauge = ConstGauge::new(self.seconds(phase, now));
            gauge.encode(encoder.encode_family(&[("phase", phase.as_str())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use podward_support::metrics_text;

    use super::*;

    const NOW: UnixNanos = UnixNanos(100_000_000_000);
    const EARLY: Option<i64> = Some(40_000_000_000);
    const LATE: Option<i64> = Some(90_000_000_000);

    #[test]
    fn the_oldest_start_counts_until_its_last_operation_has_left() {
        let oldest = OldestOperations::default();
        let seconds = || oldest.seconds(OperationPhase::Preparing, NOW);
        assert_eq!(seconds(), 0.0);
        for since in [LATE, EARLY, EARLY, None] {
            oldest.entered(OperationPhase::Preparing, since);
        }
        oldest.entered(OperationPhase::Completing, Some(1));
        assert_eq!(seconds(), 60.0);
        oldest.left(OperationPhase::Preparing, EARLY);
        assert_eq!(seconds(), 60.0);
        oldest.left(OperationPhase::Preparing, EARLY);
        oldest.left(OperationPhase::Preparing, None);
        assert_eq!(seconds(), 10.0);
        oldest.left(OperationPhase::Preparing, LATE);
        assert_eq!(seconds(), 0.0);
        // An age is never negative, and removing an operation twice has no effect.
        oldest.left(OperationPhase::Preparing, LATE);
        oldest.entered(OperationPhase::Preparing, Some(NOW.0 + 1));
        assert_eq!(seconds(), 0.0);
        oldest.clear();
        assert_eq!(oldest.seconds(OperationPhase::Completing, NOW), 0.0);
    }

    #[test]
    fn every_phase_has_a_value_from_the_start() {
        let mut registry = Registry::with_prefix("podward");
        registry.register_collector(Box::new(OldestOperations::default()));
        let text = metrics_text(&registry);
        assert!(text.contains("# TYPE podward_operation_oldest_seconds gauge"), "{text}");
        assert!(text.contains("podward_operation_oldest_seconds{phase=\"Completing\"} 0.0"), "{text}");
    }
}
