//! The metric for questions to hooks that are past their deadline while their pods wait.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use podward_core::hooks::HookPhase;
use podward_hooks::HookMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The number of overdue questions by hook and phase. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct OverdueQuestions {
    counts: Arc<Mutex<BTreeMap<(String, HookPhase), usize>>>,
    /// Limits the values of the label `hook`.
    hooks: HookMetrics,
}

impl OverdueQuestions {
    pub(super) fn new(hooks: HookMetrics) -> Self {
        OverdueQuestions { counts: Arc::default(), hooks }
    }

    /// Adds a question.
    pub(super) fn add(&self, hook: &str, phase: HookPhase) {
        *self.counts.lock().entry((hook.to_owned(), phase)).or_default() += 1;
    }

    /// Removes a question.
    pub(super) fn remove(&self, hook: &str, phase: HookPhase) {
        let (mut counts, key) = (self.counts.lock(), (hook.to_owned(), phase));
        let Some(count) = counts.get_mut(&key) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }

    /// Removes all questions.
    pub(super) fn clear(&self) {
        self.counts.lock().clear();
    }

    fn by_label(&self) -> BTreeMap<(String, HookPhase), i64> {
        let mut labels: BTreeMap<(String, HookPhase), i64> = BTreeMap::new();
        for ((hook, phase), count) in &*self.counts.lock() {
            let shown = labels.entry((self.hooks.label(hook).to_owned(), *phase)).or_default();
            *shown = shown.saturating_add(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        labels
    }
}

impl Collector for OverdueQuestions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.by_label();
        if counts.is_empty() {
            return Ok(());
        }
        let mut encoder = encoder.encode_descriptor(
            "hook_overdue_questions",
            "Questions to hooks that are past their deadline while their pods wait",
            None,
            MetricType::Gauge,
        )?;
        for ((hook, phase), count) in counts {
            let labels = [("hook", hook.as_str()), ("phase", phase.as_str())];
            ConstGauge::new(count).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
