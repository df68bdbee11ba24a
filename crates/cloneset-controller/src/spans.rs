//! Spans of the states of pods. All spans of a set with one revision of its template are in one trace.

use jiff::Timestamp;
use kube::ResourceExt;
use podward_api::CloneSet;
use podward_core::cloneset::{HookWait, SetPod, State, keys};
use podward_core::trace::{SpanId, TraceId, root_of, run_label, trace_of};
use podward_kube_util::unix_nanos;
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind, random_span_id};

use crate::pod::Pod;

/// Returns the span of the state that a pod leaves now. `since` is when the pod got it, `to` the state that follows, and
/// `late` the hook whose deadline has passed. `None` if the pod was in use in this state.
pub(crate) fn of_state(
    set: &CloneSet,
    (pod, seen): (&Pod, &SetPod),
    revision: &str,
    since: Option<Timestamp>,
    to: Option<State>,
    late: Option<&HookWait>,
    now: Timestamp,
) -> Option<NewSpan> {
    let state = seen.state.filter(|state| *state != State::Normal)?;
    let written = pod.annotations().get(keys::STATE_TIME).and_then(|text| text.parse().ok());
    let since = since.or(written)?;
    let uid = pod.uid().unwrap_or_default();
    let mut attributes = vec![
        KeyValue::new("k8s.namespace.name", set.namespace().unwrap_or_default()),
        KeyValue::new("k8s.pod.name", seen.name.clone()),
        KeyValue::new("k8s.pod.uid", uid.clone()),
        KeyValue::new("podward.cloneset.name", set.name_any()),
        KeyValue::new("podward.cloneset.revision", revision.to_owned()),
        KeyValue::new("podward.cloneset.next", to.map_or("deleted", State::as_str)),
    ];
    attributes.extend(late.map(|wait| KeyValue::new("podward.cloneset.proceeded", wait.hook.as_str())));
    Some(NewSpan {
        trace: trace_of(&set.uid().unwrap_or_default(), revision),
        id: random_span_id(),
        parent: None,
        kind: SpanKind::Internal,
        name: state.as_str().into(),
        start: unix_nanos(since.min(now)),
        end: unix_nanos(now),
        attributes,
        events: Vec::new(),
        links: operation(pod, &uid).into_iter().collect(),
        error: None,
    })
}

/// Returns the span of the operation that updates the pod.
fn operation(pod: &Pod, uid: &str) -> Option<(TraceId, SpanId)> {
    let id = keys::UPDATE_OPERATION;
    let run = pod.labels().get(&run_label(id))?;
    Some((trace_of(uid, id), root_of(uid, id, run)))
}
