//! Spans of decisions that have changed something of an operation, or refused to: parts of the operation's root span.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use json_patch::PatchOperation;
use podward_core::UnixNanos;
use podward_core::trace::{operation_of, root_of, run_label, trace_of};

use super::decode::AdmissionRequest;
use super::response::AdmissionResponse;
use super::service::Route;
use crate::telemetry::traces::{KeyValue, NewSpan, SpanKind, Spans, random_span_id};

/// The pod that a request is about, as far as its operations are concerned.
#[derive(Clone, Copy, Debug)]
pub struct TracedPod<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its labels as they are to be, if it is to be.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Its labels as they are stored, if it is.
    pub old_labels: Option<&'a BTreeMap<String, String>>,
}

impl TracedPod<'_> {
    /// The operations that the request, or what was made of it, changes.
    fn operations<'s>(&'s self, response: &'s AdmissionResponse) -> BTreeSet<String> {
        let labels = self.labels.into_iter().chain(self.old_labels).flatten();
        let differs = |key: &String| {
            self.labels.and_then(|labels| labels.get(key))
                != self.old_labels.and_then(|labels| labels.get(key))
        };
        let written = labels.map(|(key, _)| key).filter(|key| differs(key)).cloned();
        let patch = response.patch.iter().flat_map(|patch| patch.0.iter());
        let patched = patch.flat_map(|operation| -> Vec<String> {
            let named = |path: &json_patch::jsonptr::Pointer| {
                path.tokens().last().map(|token| token.decoded().into_owned()).unwrap_or_default()
            };
            match operation {
                // All labels at once, where there were none.
                PatchOperation::Add(add) if add.value.is_object() => {
                    add.value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
                }
                other => vec![named(other.path())],
            }
        });
        written.chain(patched).filter_map(|key| operation_of(&key).map(ToOwned::to_owned)).collect()
    }

    /// The run of the operation `id`; `None` if there is none.
    fn run(&self, id: &str) -> Option<&str> {
        let label = run_label(id);
        let labels = self.labels.into_iter().chain(self.old_labels);
        labels.filter_map(|labels| labels.get(&label)).map(String::as_str).next()
    }
}

/// Tells of a decision that took so long and is made just now. One that changes nothing, or that was told before, isn't told.
pub(super) fn tell<T>(
    spans: &Spans,
    route: &Route,
    request: &AdmissionRequest<'_, T>,
    pod: &TracedPod<'_>,
    response: &AdmissionResponse,
    took: Duration,
) {
    let is_news = if response.allowed { response.patch.is_some() } else { !response.is_repeated };
    if request.dry_run || pod.uid.is_empty() || !is_news {
        return;
    }
    let end = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let start = end.saturating_sub(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
    for id in pod.operations(response) {
        let Some(run) = pod.run(&id) else { continue };
        spans.send(NewSpan {
            trace: trace_of(pod.uid, &id),
            id: random_span_id(),
            parent: Some(root_of(pod.uid, &id, run)),
            kind: SpanKind::Server,
            name: format!("admission {}", route.path).into(),
            start: UnixNanos(start),
            end: UnixNanos(end),
            attributes: vec![
                KeyValue::new("k8s.namespace.name", request.namespace.to_string()),
                KeyValue::new("k8s.pod.name", request.name.to_string()),
                KeyValue::new("k8s.pod.uid", pod.uid.to_owned()),
                KeyValue::new("podward.operation.id", id),
                KeyValue::new("podward.admission.uid", request.uid.to_string()),
                KeyValue::new("podward.admission.operation", request.operation.as_str()),
                KeyValue::new("podward.admission.allowed", response.allowed),
                KeyValue::new("user.name", request.user_info.username.to_string()),
            ],
            events: Vec::new(),
            links: Vec::new(),
            error: (!response.allowed).then(|| response.message.clone()),
        });
    }
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use serde_json::json;

    use super::*;

    fn labels(keys: &[&str]) -> BTreeMap<String, String> {
        let label = |key: &&str| (format!("{key}.podopslifecycle.kusionstack.io/a"), "1".to_owned());
        keys.iter().map(label).chain([("app".to_owned(), "web".to_owned())]).collect()
    }

    #[test]
    fn operations_are_those_whose_labels_change() {
        let (before, after) = (labels(&[]), labels(&["operating"]));
        let pod = |labels, old_labels| TracedPod { uid: "u", labels, old_labels };
        let nothing = AdmissionResponse::allow();
        assert!(pod(Some(&after), Some(&after)).operations(&nothing).is_empty());
        let begins = pod(Some(&after), Some(&before));
        assert_eq!(begins.operations(&nothing).into_iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!(begins.run("a"), Some("1"));
        let ends = pod(Some(&before), Some(&after));
        assert_eq!((ends.operations(&nothing).len(), ends.run("a")), (1, Some("1")));
        let deleted = pod(None, Some(&after));
        assert_eq!((deleted.operations(&nothing).len(), deleted.run("b")), (1, None));
    }

    #[test]
    fn operations_are_those_that_a_patch_changes() {
        let after = labels(&["operating"]);
        let pod = TracedPod { uid: "u", labels: Some(&after), old_labels: Some(&after) };
        for patch in [
            json!([{"op": "add", "path": "/metadata/labels/pre-check.podopslifecycle.kusionstack.io~1a", "value": "1"}]),
            json!([{"op": "remove", "path": "/metadata/labels/operating.podopslifecycle.kusionstack.io~1a"}]),
            json!([{"op": "add", "path": "/metadata/labels", "value": {"pre-check.podopslifecycle.kusionstack.io/a": "1"}}]),
        ] {
            let patch: Patch = serde_json::from_value(patch).unwrap();
            let operations = pod.operations(&AdmissionResponse::allow_with(patch)).len();
            assert_eq!(operations, 1);
        }
        let other = json!([{"op": "add", "path": "/metadata/annotations/x", "value": "1"}]);
        let other: Patch = serde_json::from_value(other).unwrap();
        assert!(pod.operations(&AdmissionResponse::allow_with(other)).is_empty());
    }
}
