//! The traces of the operations on all pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use podward_core::trace::{OperationRun, OperationSpan, TraceId};
use podward_core::{HookReport, Operations, UnixNanos};
use podward_kube_util::{CachedPod, PodKey};
use podward_proto::v1;
use podward_runtime::telemetry::traces::Spans;

use crate::call_span::{CallSpan, RuleWebhookCall};
use crate::spans::{self, OperationRef};

/// The largest number of links of a span, the default limit of OpenTelemetry.
const MAX_LINKS: usize = 128;

/// The traces of the operations on all pods. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct OperationTraces(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    spans: Spans,
    /// The pods with operations, by UID.
    pods: Mutex<HashMap<String, TracedPod>>,
}

/// The traced operations of one pod.
#[derive(Debug)]
struct TracedPod {
    key: PodKey,
    /// By operation id.
    runs: BTreeMap<String, OperationRun>,
}

impl OperationTraces {
    /// Returns the traces of a new leader, which emits its spans to `spans`. Nothing is stored if spans are not
    /// exported.
    #[must_use]
    pub fn new(spans: Spans) -> Self {
        let are_wanted = spans.are_wanted();
        OperationTraces(are_wanted.then(|| Arc::new(Shared { spans, pods: Mutex::default() })))
    }

    /// Compares a version of `pod` with the previous one and emits the spans of the phases and operations that have
    /// ended at `now`.
    ///
    /// `is_known` is true if this leader has seen an earlier version of the pod.
    pub fn observe(&self, pod: &CachedPod, operations: &Operations<'_>, is_known: bool, now: UnixNanos) {
        let Some(inner) = &self.0 else { return };
        let view = pod.view();
        if view.terminating && view.finalizers.is_empty() {
            // The API server removes the pod now. There is no further reconciliation.
            return inner.gone(pod.uid());
        }
        let mut pods = inner.pods.lock();
        if let Some(traced) = pods.get_mut(pod.uid()) {
            let TracedPod { key, runs } = traced;
            runs.retain(|id, run| {
                let (spans, is_over) = run.observe(view.labels, operations, now);
                inner.send(
                    spans,
                    &OperationRef { key, uid: pod.uid(), id, operation_type: run.operation_type() },
                );
                !is_over
            });
        }
        for (id, operation) in operations.iter() {
            let is_followed = pods.get(pod.uid()).is_some_and(|traced| traced.runs.contains_key(id));
            if is_followed || !operation.is_live() {
                continue;
            }
            let Some((run, spans)) =
                OperationRun::begin(pod.uid(), id, view.labels, operations, is_known, now)
            else {
                continue;
            };
            let new = || TracedPod { key: pod.key(), runs: BTreeMap::new() };
            let traced = pods.entry(pod.uid().to_owned()).or_insert_with(new);
            let about =
                OperationRef { key: &traced.key, uid: pod.uid(), id, operation_type: run.operation_type() };
            inner.send(spans, &about);
            traced.runs.insert(id.to_owned(), run);
        }
        if pods.get(pod.uid()).is_some_and(|traced| traced.runs.is_empty()) {
            pods.remove(pod.uid());
        }
    }

    /// Adds the reports of hooks about `pod` to its current phases. Call this before the reports take effect, as that
    /// ends the phase.
    pub fn observe_hooks(&self, pod: &CachedPod, notes: &[HookReport], now: UnixNanos) {
        let Some(inner) = self.0.as_ref().filter(|_| !notes.is_empty()) else { return };
        let mut pods = inner.pods.lock();
        let runs = pods.get_mut(pod.uid()).into_iter().flat_map(|traced| traced.runs.values_mut());
        for run in runs {
            notes.iter().for_each(|note| run.add_report(note, now));
        }
    }

    /// Returns the trace of the operation `id` on the pod with this UID, or `None` if spans are not exported.
    #[must_use]
    pub fn trace_of(&self, uid: &str, id: &str) -> Option<TraceId> {
        self.0.is_some().then(|| podward_core::trace::trace_of(uid, id))
    }

    /// Emits the remaining spans of the pod with this UID, which is gone.
    pub fn gone(&self, uid: &str) {
        if let Some(inner) = &self.0 {
            inner.gone(uid);
        }
    }

    /// Starts the span of a call to a hook. Returns `None` if spans are not exported or no operation of the request is
    /// traced.
    #[must_use]
    pub fn hook_call(&self, request: &v1::HandleRequest) -> Option<Box<CallSpan>> {
        let inner = self.0.as_ref()?;
        let uid = &request.pod.as_ref()?.uid;
        let pods = inner.pods.lock();
        let traced = pods.get(uid)?;
        let mut runs = request.operations.iter().filter_map(|operation| {
            let (id, run) = traced.runs.get_key_value(&operation.id)?;
            Some((
                OperationRef { key: &traced.key, uid, id, operation_type: run.operation_type() },
                run.here(),
            ))
        });
        let (about, place) = runs.next()?;
        let others = runs.map(|(_, place)| place).collect();
        Some(Box::new(CallSpan::begin(inner.spans.clone(), request, &about, place, others)))
    }

    /// Starts the span of a call to the webhook of a rule. Returns `None` if spans are not exported or no operation is
    /// traced.
    #[must_use]
    pub fn webhook_call(&self, call: &RuleWebhookCall<'_>) -> Option<Box<CallSpan>> {
        let inner = self.0.as_ref()?;
        let pods = inner.pods.lock();
        let mut runs = call.operations.iter().filter_map(|(uid, operation)| {
            let traced = pods.get(*uid)?;
            let (id, run) = traced.runs.get_key_value(*operation)?;
            Some((
                OperationRef { key: &traced.key, uid, id, operation_type: run.operation_type() },
                run.here(),
            ))
        });
        let (about, place) = runs.next()?;
        let others = runs.map(|(_, place)| place).take(MAX_LINKS).collect();
        Some(Box::new(CallSpan::of_rule(inner.spans.clone(), call, &about, place, others)))
    }
}

impl Shared {
    fn gone(&self, uid: &str) {
        let Some(TracedPod { key, runs }) = self.pods.lock().remove(uid) else { return };
        for (id, run) in runs {
            let operation_type = run.operation_type().to_owned();
            self.send(
                run.pod_gone(),
                &OperationRef { key: &key, uid, id: &id, operation_type: &operation_type },
            );
        }
    }

    fn send(&self, spans: Vec<OperationSpan>, about: &OperationRef<'_>) {
        spans.into_iter().for_each(|span| self.spans.send(spans::new(span, about)));
    }
}

#[cfg(test)]
mod tests;
