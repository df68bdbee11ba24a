//! Metrics.

use std::sync::atomic::AtomicI64;

use podward_core::cloneset::{HookKind, State};
use podward_kube_util::EventMetrics;
use podward_kube_util::watched::WatchMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HookLabels {
    hook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WriteLabels {
    action: &'static str,
    outcome: &'static str,
}

/// The metrics of the controller.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) watches: WatchMetrics,
    pub(crate) events: EventMetrics,
    pub(crate) leader: Gauge<i64, AtomicI64>,
    /// 1 while this replica leads, and leaves the sets to OpenKruise.
    pub(crate) yields: Gauge<i64, AtomicI64>,
    /// The pods that wait longer for a hook than its deadline.
    pub(crate) past_deadline: Gauge<i64, AtomicI64>,
    /// Reconciliations that failed.
    pub(crate) errors: Counter,
    proceeded: Family<HookLabels, Counter>,
    transitions: Family<StateLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let cloneset = registry.sub_registry_with_prefix("cloneset");
        cloneset.register("leader", "1 while this replica works on CloneSets", self.leader.clone());
        cloneset.register(
            "left_to_openkruise",
            "1 while this replica leads and OpenKruise is installed, so that Podward does not touch CloneSets",
            self.yields.clone(),
        );
        cloneset.register(
            "pods_past_deadline",
            "Pods that wait longer for a hook than its deadline",
            self.past_deadline.clone(),
        );
        cloneset.register(
            "errors",
            "Reconciliations of CloneSets that failed, whatever step failed; not those that another writer overtook",
            self.errors.clone(),
        );
        cloneset.register(
            "proceeded",
            "Pods that went on without a hook whose deadline had passed, by hook",
            self.proceeded.clone(),
        );
        cloneset.register(
            "transitions",
            "State labels that were written, by state",
            self.transitions.clone(),
        );
        cloneset.register(
            "writes",
            "Steps of pods and creations, by what they do and how they ended",
            self.writes.clone(),
        );
        self.watches.register(registry);
        self.events.register(registry);
    }

    /// Sets what is only known while this replica works on CloneSets.
    pub(crate) fn works(&self, works: bool) {
        self.leader.set(i64::from(works));
        self.past_deadline.set(0);
    }

    /// Counts a pod that went on without a hook.
    pub(crate) fn proceeded(&self, hook: HookKind) {
        self.proceeded.get_or_create(&HookLabels { hook: hook.as_str() }).inc();
    }

    /// Counts a state label that was written.
    pub(crate) fn moved(&self, state: State) {
        self.transitions.get_or_create(&StateLabels { state: state.as_str() }).inc();
    }

    /// Counts steps of pods.
    pub(crate) fn wrote(&self, action: &'static str, outcome: &'static str, count: usize) {
        let labels = WriteLabels { action, outcome };
        self.writes.get_or_create(&labels).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_work_knows_of_no_late_pod() {
        let metrics = Metrics::default();
        metrics.works(true);
        metrics.past_deadline.set(3);
        metrics.works(false);
        assert_eq!((metrics.leader.get(), metrics.past_deadline.get()), (0, 0));
    }
}
