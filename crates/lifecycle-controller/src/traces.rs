//! The traces of operations. What is remembered for them may be lost at any time: then a trace has fewer spans.
//!
//! The leader gives the span of a phase when it sees that the phase was left, and the root when it sees that the operation is over. A
//! phase is told of by the one leader that saw it left, a root by the one that saw the end: nothing is told twice but where a process
//! that has ceased to lead, and doesn't know it yet, sees the same. Then both give the span the same id.

mod calls;
mod spans;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use podward_core::trace::{Run, Span};
use podward_core::{Note, Operations, UnixNanos};
use podward_proto::v1;
use podward_runtime::telemetry::traces::Spans;

use crate::cached_pod::{CachedPod, PodKey};
use crate::rules::{RuleId, Subject};

pub(crate) use calls::CallSpan;
use spans::About;

/// A batch of pods may be large; a span has this many links at most, as OpenTelemetry's own limit is.
const MOST_LINKS: usize = 128;

/// The traces. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    spans: Spans,
    /// By UID: pods with operations.
    pods: Mutex<HashMap<String, Traced>>,
}

/// What goes on with one pod.
#[derive(Debug)]
struct Traced {
    key: PodKey,
    /// By operation.
    runs: BTreeMap<String, Run>,
}

impl Traces {
    /// Of a leader that has just begun; they go to `spans`. Nothing is remembered when nobody wants them.
    pub(crate) fn new(spans: Spans) -> Self {
        let are_wanted = spans.are_wanted();
        Traces(are_wanted.then(|| Arc::new(Inner { spans, pods: Mutex::default() })))
    }

    /// Takes note of a version of a pod. `is_known` is whether this leader has seen one before.
    pub(crate) fn observe(
        &self,
        pod: &CachedPod,
        operations: &Operations<'_>,
        is_known: bool,
        now: UnixNanos,
    ) {
        let Some(inner) = &self.0 else { return };
        let view = pod.view();
        if view.terminating && view.finalizers.is_empty() {
            // Nothing stands in the way of the pod's end any more, and nobody will be told of it.
            return inner.gone(pod.uid());
        }
        let mut pods = inner.pods.lock();
        if let Some(traced) = pods.get_mut(pod.uid()) {
            let Traced { key, runs } = traced;
            runs.retain(|id, run| {
                let (spans, is_over) = run.observe(view.labels, operations, now);
                inner.send(spans, &About { key, uid: pod.uid(), id, operation_type: run.operation_type() });
                !is_over
            });
        }
        for (id, operation) in operations.iter() {
            let is_followed = pods.get(pod.uid()).is_some_and(|traced| traced.runs.contains_key(id));
            if is_followed || !operation.is_live() {
                continue;
            }
            let Some((run, spans)) = Run::begin(pod.uid(), id, view.labels, operations, is_known, now) else {
                continue;
            };
            let new = || Traced { key: pod.key(), runs: BTreeMap::new() };
            let traced = pods.entry(pod.uid().to_owned()).or_insert_with(new);
            let about = About { key: &traced.key, uid: pod.uid(), id, operation_type: run.operation_type() };
            inner.send(spans, &about);
            traced.runs.insert(id.to_owned(), run);
        }
        if pods.get(pod.uid()).is_some_and(|traced| traced.runs.is_empty()) {
            pods.remove(pod.uid());
        }
    }

    /// What hooks have said about `pod`, before it is acted on: acting on it ends the phase.
    pub(crate) fn heard(&self, pod: &CachedPod, notes: &[Note], now: UnixNanos) {
        let Some(inner) = self.0.as_ref().filter(|_| !notes.is_empty()) else { return };
        let mut pods = inner.pods.lock();
        let runs = pods.get_mut(pod.uid()).into_iter().flat_map(|traced| traced.runs.values_mut());
        for run in runs {
            notes.iter().for_each(|note| run.heard(note, now));
        }
    }

    /// The pod with this UID is not there any more.
    pub(crate) fn gone(&self, uid: &str) {
        if let Some(inner) = &self.0 {
            inner.gone(uid);
        }
    }

    /// The span of a call to a hook that begins now; `None` when nobody wants it, or it is about no operation that is followed.
    pub(crate) fn call(&self, request: &v1::HandleRequest) -> Option<Box<CallSpan>> {
        let inner = self.0.as_ref()?;
        let uid = &request.pod.as_ref()?.uid;
        let pods = inner.pods.lock();
        let traced = pods.get(uid)?;
        let mut runs = request.operations.iter().filter_map(|operation| {
            let (id, run) = traced.runs.get_key_value(&operation.id)?;
            Some((About { key: &traced.key, uid, id, operation_type: run.operation_type() }, run.here()))
        });
        let (about, place) = runs.next()?;
        let others = runs.map(|(_, place)| place).collect();
        Some(Box::new(CallSpan::begin(inner.spans.clone(), request, &about, place, others)))
    }

    /// The same for a call to the webhook of `rule`, on `host`, about `asked`.
    pub(crate) fn webhook_call(&self, rule: &RuleId, host: &str, asked: &[Subject]) -> Option<Box<CallSpan>> {
        let inner = self.0.as_ref()?;
        let pods = inner.pods.lock();
        let mut runs = asked.iter().filter_map(|Subject { uid, operation, .. }| {
            let traced = pods.get(uid)?;
            let (id, run) = traced.runs.get_key_value(operation)?;
            Some((About { key: &traced.key, uid, id, operation_type: run.operation_type() }, run.here()))
        });
        let (about, place) = runs.next()?;
        let others = runs.map(|(_, place)| place).take(MOST_LINKS).collect();
        let spans = inner.spans.clone();
        Some(Box::new(CallSpan::of_rule(spans, (rule, host), asked.len(), &about, place, others)))
    }
}

impl Inner {
    fn gone(&self, uid: &str) {
        let Some(Traced { key, runs }) = self.pods.lock().remove(uid) else { return };
        for (id, run) in runs {
            let operation_type = run.operation_type().to_owned();
            self.send(run.pod_gone(), &About { key: &key, uid, id: &id, operation_type: &operation_type });
        }
    }

    fn send(&self, spans: Vec<Span>, about: &About<'_>) {
        spans.into_iter().for_each(|span| self.spans.send(spans::new(span, about)));
    }
}

#[cfg(test)]
mod tests;
