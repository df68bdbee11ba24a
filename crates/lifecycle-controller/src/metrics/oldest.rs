//! For how long the oldest operation of each phase has been in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use podward_core::{Phase, UnixNanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Those whose beginning is on the pod, in the value of a label.
const PHASES: [Phase; 5] =
    [Phase::PreChecking, Phase::Preparing, Phase::Operating, Phase::PostChecking, Phase::Completing];

/// How many operations entered a phase at which time, in order: entering and leaving cost little, and a scrape looks at the first
/// of each phase alone. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(Arc<Mutex<BTreeMap<Phase, BTreeMap<i64, usize>>>>);

impl Oldest {
    /// An operation entered `phase` at `since`, in nanoseconds since the Unix epoch.
    pub(super) fn entered(&self, phase: Phase, since: Option<i64>) {
        if let Some(since) = since {
            *self.0.lock().entry(phase).or_default().entry(since).or_default() += 1;
        }
    }

    /// The one that entered `phase` at `since` has left it.
    pub(super) fn left(&self, phase: Phase, since: Option<i64>) {
        let mut phases = self.0.lock();
        let Some((since, times)) = since.zip(phases.get_mut(&phase)) else { return };
        if let Some(count) = times.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                times.remove(&since);
            }
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    fn seconds(&self, phase: Phase, now: UnixNanos) -> f64 {
        let phases = self.0.lock();
        let first = phases.get(&phase).and_then(|times| times.keys().next().copied());
        first.map_or(0.0, |since| now.0.saturating_sub(since).max(0) as f64 / 1e9)
    }
}

impl Collector for Oldest {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = crate::reconcile::now();
        let mut encoder = encoder.encode_descriptor(
            "operation_oldest",
            "Time that the oldest operation in a phase has been in it; 0 with none",
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

    use super::*;

    const NOW: UnixNanos = UnixNanos(100_000_000_000);
    const EARLY: Option<i64> = Some(40_000_000_000);
    const LATE: Option<i64> = Some(90_000_000_000);

    #[test]
    fn the_oldest_counts_until_the_last_of_its_time_has_left() {
        let oldest = Oldest::default();
        let seconds = || oldest.seconds(Phase::Preparing, NOW);
        assert_eq!(seconds(), 0.0);
        for since in [LATE, EARLY, EARLY, None] {
            oldest.entered(Phase::Preparing, since);
        }
        oldest.entered(Phase::Completing, Some(1));
        assert_eq!(seconds(), 60.0);
        oldest.left(Phase::Preparing, EARLY);
        assert_eq!(seconds(), 60.0);
        oldest.left(Phase::Preparing, EARLY);
        oldest.left(Phase::Preparing, None);
        assert_eq!(seconds(), 10.0);
        oldest.left(Phase::Preparing, LATE);
        assert_eq!(seconds(), 0.0);
        // A clock that is behind makes no age below zero, and nothing is left twice.
        oldest.left(Phase::Preparing, LATE);
        oldest.entered(Phase::Preparing, Some(NOW.0 + 1));
        assert_eq!(seconds(), 0.0);
        oldest.clear();
        assert_eq!(oldest.seconds(Phase::Completing, NOW), 0.0);
    }

    #[test]
    fn every_phase_has_a_figure_at_once() {
        let mut registry = Registry::with_prefix("podward");
        registry.register_collector(Box::new(Oldest::default()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("# TYPE podward_operation_oldest_seconds gauge"), "{text}");
        assert!(text.contains("podward_operation_oldest_seconds{phase=\"Completing\"} 0.0"), "{text}");
    }
}
