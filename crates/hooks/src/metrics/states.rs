//! The metrics of the present state of hooks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use podward_kube_util::BoundedNames;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The state of each hook, by name. Hooks beyond the limit of names are shown together. Clones share the values.
#[derive(Clone, Debug)]
pub(super) struct HookStates {
    names: Arc<BoundedNames>,
    hooks: Arc<Mutex<BTreeMap<String, State>>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) open: Option<i64>,
    pub(super) reachable: Option<bool>,
    pub(super) rejected: bool,
}

impl State {
    /// Adds the state of another hook: the sum of its questions, and its problems.
    fn add(&mut self, other: State) {
        self.open = self.open.into_iter().chain(other.open).reduce(i64::saturating_add);
        self.reachable = self.reachable.into_iter().chain(other.reachable).reduce(|one, other| one && other);
        self.rejected |= other.rejected;
    }
}

impl HookStates {
    pub(super) fn new(names: Arc<BoundedNames>) -> Self {
        HookStates { names, hooks: Arc::default() }
    }

    /// Changes the state of `hook`.
    pub(super) fn update(&self, hook: &str, change: impl FnOnce(&mut State)) {
        self.names.admit(hook);
        change(self.hooks.lock().entry(hook.to_owned()).or_default());
    }

    pub(super) fn forget(&self, hook: &str) {
        self.hooks.lock().remove(hook);
    }

    pub(super) fn clear(&self) {
        self.hooks.lock().clear();
    }

    fn by_label(&self) -> BTreeMap<String, State> {
        let mut labels: BTreeMap<String, State> = BTreeMap::new();
        for (hook, state) in &*self.hooks.lock() {
            labels.entry(self.names.label(hook).to_owned()).or_default().add(*state);
        }
        labels
    }
}

impl Collector for HookStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let states = self.by_label();
        let mut gauge = |name: &str, help: &str, value: fn(&State) -> Option<i64>| {
            let series: Vec<_> =
                states.iter().filter_map(|(hook, state)| Some((hook, value(state)?))).collect();
            if series.is_empty() {
                return Ok(());
            }
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (hook, value) in series {
                ConstGauge::new(value).encode(encoder.encode_family(&[("hook", hook.as_str())])?)?;
            }
            Ok(())
        };
        gauge("hook_questions_open", "Questions that a hook has not yet answered with DONE", |state| {
            state.open
        })?;
        gauge("hook_reachable", "1 while the hook is reachable, otherwise 0", |state| {
            state.reachable.map(i64::from)
        })?;
        gauge("hook_rejected", "1 while the spec of the LifecycleHook is invalid", |state| {
            state.rejected.then_some(1)
        })
    }
}
