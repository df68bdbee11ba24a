//! The patches of a step.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use podward_core::cloneset::{Hook, NotReadyKeys, OperationStep, PodStep, Previous, PutBack, Rearm, keys};
use podward_core::keys::Stage;
use podward_kube_util::unix_nanos;
use serde_json::{Map, Value, json};

use crate::observe::{NotReadyKey, condition, not_ready_list};
use crate::pod::Pod;
use crate::template::{Patches, PodPatch, whole_seconds};

/// A strategic merge patch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// Of the subresource `status`. It may contain labels and annotations as well.
    Status(Value),
    /// Of the subresource `resize`.
    Resize(Value),
    /// Of the pod.
    Pod(Value),
}

impl Write {
    /// Returns true if the pod gets a state.
    pub(super) fn has_state(&self) -> bool {
        let (Self::Status(body) | Self::Resize(body) | Self::Pod(body)) = self;
        body["metadata"]["labels"].get(keys::STATE_LABEL).is_some()
    }
}

/// Returns the writes of a step that does not delete the pod, in their order. All of them have to find the pod as it was
/// after the write before. `change` are the patches that replace containers.
pub(super) fn writes(
    pod: &Pod,
    step: &PodStep,
    hook: Option<&Hook>,
    change: Option<Patches>,
    now: Timestamp,
) -> Vec<Write> {
    let Patches { resize, pod: mut patch } =
        change.unwrap_or_else(|| Patches { resize: None, pod: PodPatch::of(pod) });
    let is_change = step.update || step.next_batch;
    metadata(&mut patch, pod, step, hook, now);
    let conditions = conditions(pod, step, now);
    let takes_out =
        step.update_ready == Some(false) || step.not_ready.is_some_and(|it| it != NotReadyKeys::default());
    // The operation has to pass the admission of pods.
    let is_plain = !is_change && step.operation.is_none() && patch.finalizers.is_empty();
    let status = |metadata: Value| json!({"metadata": metadata, "status": {"conditions": conditions}});
    let body = patch.to_json();
    if is_plain && !conditions.is_empty() {
        return vec![Write::Status(status(body.get("metadata").cloned().unwrap_or_default()))];
    }
    let alone = PodPatch {
        uid: patch.uid.clone(),
        resource_version: patch.resource_version.clone(),
        ..PodPatch::default()
    };
    let alone = alone.to_json().get("metadata").cloned().unwrap_or_default();
    let status = (!conditions.is_empty()).then(|| Write::Status(status(alone)));
    let main = resize.map(Write::Resize).into_iter().chain((!patch.is_empty()).then_some(Write::Pod(body)));
    match takes_out {
        true => status.into_iter().chain(main).collect(),
        false => main.chain(status).collect(),
    }
}

fn metadata(patch: &mut PodPatch, pod: &Pod, step: &PodStep, hook: Option<&Hook>, now: Timestamp) {
    let PodPatch { labels, annotations, finalizers, .. } = patch;
    let mut label = |key: &str, value: Option<String>| drop(labels.insert(key.to_owned(), value));
    if let Some(state) = step.state {
        label(keys::STATE_LABEL, Some(state.to_string()));
        annotations.insert(keys::STATE_TIME.to_owned(), Some(whole_seconds(now)));
    }
    if step.specify {
        label(keys::SPECIFIED_DELETE, Some("true".to_owned()));
    }
    let id = keys::UPDATE_OPERATION;
    match step.operation {
        Some(OperationStep::Begin) => {
            label(&Stage::Operating.key(id), Some(unix_nanos(now).0.to_string()));
            label(&Stage::OperationType.key(id), Some(keys::UPDATE_TYPE.to_owned()));
        }
        Some(OperationStep::Finish) => {
            label(&Stage::Operating.key(id), None);
            label(&Stage::OperationType.key(id), None);
        }
        Some(OperationStep::Cancel) => {
            label(&Stage::UndoOperationType.key(id), Some(keys::UPDATE_TYPE.to_owned()));
        }
        None => {}
    }
    match (step.rearm, hook) {
        (Some(Rearm::Begin), Some(hook)) => {
            let missing = hook.missing(pod.labels(), pod.finalizers());
            annotations.insert(keys::REARMED.to_owned(), Some(missing.text()));
            labels.extend(missing.labels.into_iter().map(|(key, value)| (key, Some(value))));
            finalizers.extend(missing.finalizers.into_iter().map(|name| (name, true)));
        }
        (Some(Rearm::End), _) => {
            let stored = pod.annotations().get(keys::REARMED).map(|text| PutBack::parse(text));
            let left = stored.unwrap_or_default().left(pod.labels(), pod.finalizers());
            // The template may have them, too.
            for key in left.labels.into_keys() {
                labels.entry(key).or_insert(None);
            }
            for name in left.finalizers {
                finalizers.entry(name).or_insert(false);
            }
            annotations.insert(keys::REARMED.to_owned(), None);
        }
        (Some(Rearm::Forget), _) => drop(annotations.insert(keys::REARMED.to_owned(), None)),
        _ => {}
    }
    match step.previous {
        Some(Previous::Store(state)) => {
            annotations.insert(keys::PREVIOUS_STATE.to_owned(), Some(state.to_string()));
        }
        Some(Previous::Forget) => drop(annotations.insert(keys::PREVIOUS_STATE.to_owned(), None)),
        None => {}
    }
    if let Some(hold) = &step.delete_hold {
        annotations.insert(keys::DELETE_HOLD.to_owned(), hold.clone());
    }
    if let Some(unconfirmed) = step.unconfirmed {
        annotations.insert(keys::UNCONFIRMED.to_owned(), unconfirmed.then(|| "true".to_owned()));
    }
}

fn conditions(pod: &Pod, step: &PodStep, now: Timestamp) -> Vec<Value> {
    let mut conditions = Vec::new();
    if let Some(ready) = step.update_ready {
        let reason = if ready { "" } else { "StartInPlaceUpdate" };
        conditions.push(written(pod, keys::UPDATE_READY, ready, &BTreeMap::from([("reason", reason)]), now));
    }
    if let Some(wanted) = step.not_ready {
        let mut list = not_ready_list(pod).unwrap_or_default();
        list.retain(|it| it.user_agent != keys::LIFECYCLE_AGENT);
        let ours = [
            (wanted.pre_delete, keys::PRE_DELETE_KEY),
            (wanted.pre_update, keys::PRE_UPDATE_KEY),
            (wanted.pre_normal, keys::PRE_NORMAL_KEY),
            (wanted.post_update, keys::POST_UPDATE_KEY),
        ];
        let key = |(_, key): (bool, &str)| NotReadyKey {
            user_agent: keys::LIFECYCLE_AGENT.into(),
            key: key.into(),
        };
        list.extend(ours.into_iter().filter(|(is, _)| *is).map(key));
        list.sort();
        let message = json!(list).to_string();
        conditions.push(written(
            pod,
            keys::POD_READY,
            list.is_empty(),
            &BTreeMap::from([("message", &*message)]),
            now,
        ));
    }
    conditions
}

fn written(pod: &Pod, kind: &str, is_true: bool, texts: &BTreeMap<&str, &str>, now: Timestamp) -> Value {
    let status = if is_true { "True" } else { "False" };
    let before = condition(pod, kind).filter(|before| before.status == status);
    let since = before.and_then(|before| before.last_transition_time.as_ref()).map_or(now, |time| time.0);
    let mut condition = Map::new();
    condition.insert("type".to_owned(), kind.into());
    condition.insert("status".to_owned(), status.into());
    condition.insert("lastTransitionTime".to_owned(), whole_seconds(since).into());
    condition.extend(texts.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))));
    Value::Object(condition)
}

#[cfg(test)]
mod tests {
    use podward_core::cloneset::State;

    use super::*;

    fn pod(conditions: Value) -> Pod {
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"in-use": "true"}});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn step() -> PodStep {
        PodStep { state: Some(State::Normal), ..PodStep::default() }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn a_transition_with_a_condition_is_one_write() {
        let step = PodStep { update_ready: Some(true), ..step() };
        let found = writes(&pod(json!([])), &step, None, None, NOW);
        let [Write::Status(patch)] = &found[..] else { panic!("{found:?}") };
        let condition = json!({
            "type": "InPlaceUpdateReady", "status": "True", "reason": "", "lastTransitionTime": "1970-01-01T00:00:00Z"
        });
        assert_eq!(patch["status"]["conditions"], json!([condition]));
        assert_eq!(patch["metadata"]["labels"][keys::STATE_LABEL], "Normal");
        assert_eq!(
            (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
            (&json!("u"), &json!("7"))
        );
    }

    #[test]
    fn a_pod_is_out_of_service_before_its_containers_are_replaced() {
        let step = PodStep {
            state: Some(State::Updating),
            update: true,
            update_ready: Some(false),
            ..PodStep::default()
        };
        let mut patch = PodPatch::of(&pod(json!([])));
        patch.images.insert("main".to_owned(), "web:2".to_owned());
        let change = Patches { resize: Some(json!({})), pod: patch };
        let found = writes(&pod(json!([])), &step, None, Some(change), NOW);
        let [Write::Status(status), Write::Resize(_), Write::Pod(main)] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(
            status["metadata"].get("labels").is_none()
                && status["status"]["conditions"][0]["status"] == "False"
        );
        assert_eq!(main["metadata"]["labels"][keys::STATE_LABEL], "Updating");
        assert_eq!(main["spec"]["containers"], json!([{"name": "main", "image": "web:2"}]));
    }

    #[test]
    fn others_keep_the_pod_out_of_service() {
        let others = r#"[{"userAgent":"ContainerRecreateRequest","key":"x"},{"userAgent":"Lifecycle","key":"preUpdateHook"}]"#;
        let condition = json!({
            "type": "KruisePodReady", "status": "False", "message": others, "lastTransitionTime": "2020-01-01T00:00:00Z"
        });
        let step = PodStep { not_ready: Some(NotReadyKeys::default()), ..step() };
        let found = writes(&pod(json!([condition])), &step, None, None, NOW);
        let [Write::Status(patch)] = &found[..] else { panic!("{found:?}") };
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["message"], r#"[{"key":"x","userAgent":"ContainerRecreateRequest"}]"#);
        assert_eq!(
            (&condition["status"], &condition["lastTransitionTime"]),
            (&json!("False"), &json!("2020-01-01T00:00:00Z"))
        );
    }

    #[test]
    fn an_operation_begins() {
        let step = PodStep { operation: Some(OperationStep::Begin), ..step() };
        let found = writes(&pod(json!([])), &step, None, None, NOW);
        let [Write::Pod(patch)] = &found[..] else { panic!("{found:?}") };
        let label = "operating.podopslifecycle.kusionstack.io/cloneset-update";
        assert_eq!(patch["metadata"]["labels"][label], "0");
    }

    /// The hook of two operators: the markers of the first one are on the pod.
    fn two_operators() -> (Pod, Hook) {
        let labels = ["in-use", "other"].map(|key| (key.to_owned(), "true".to_owned()));
        let finalizers = ["example.com/first", "example.com/second"].map(str::to_owned);
        let hook = Hook { labels: labels.into(), finalizers: finalizers.into(), ..Hook::default() };
        let mut pod = pod(json!([]));
        pod.metadata.labels.get_or_insert_default().insert("other".to_owned(), "no marker".to_owned());
        pod.metadata.finalizers = Some(vec!["example.com/first".to_owned()]);
        (pod, hook)
    }

    /// Returns the metadata of the only write of a step.
    fn rearm(pod: &Pod, rearm: Rearm, hook: Option<&Hook>) -> Value {
        let found = writes(pod, &PodStep { rearm: Some(rearm), ..step() }, hook, None, NOW);
        let [Write::Pod(patch)] = &found[..] else { panic!("{found:?}") };
        patch["metadata"].clone()
    }

    #[test]
    fn markers_that_are_missing_are_put_back() {
        let (pod, hook) = two_operators();
        let metadata = rearm(&pod, Rearm::Begin, Some(&hook));
        assert_eq!(metadata["labels"], json!({"other": "true", keys::STATE_LABEL: "Normal"}));
        assert_eq!(metadata["finalizers"], json!(["example.com/second"]));
        let stored = r#"{"labels":{"other":"true"},"finalizers":["example.com/second"]}"#;
        assert_eq!(metadata["annotations"][keys::REARMED], stored);
    }

    #[test]
    fn only_markers_that_were_put_back_are_taken_away_again() {
        let (mut pod, hook) = two_operators();
        let begun = rearm(&pod, Rearm::Begin, Some(&hook));
        let stored = begun["annotations"][keys::REARMED].as_str().unwrap().to_owned();
        pod.metadata.annotations.get_or_insert_default().insert(keys::REARMED.to_owned(), stored);
        pod.metadata.labels.get_or_insert_default().insert("other".to_owned(), "true".to_owned());
        pod.metadata.finalizers.get_or_insert_default().push("example.com/second".to_owned());
        // Also if the hook was removed.
        for hook in [Some(&hook), None] {
            let metadata = rearm(&pod, Rearm::End, hook);
            assert_eq!(metadata["labels"], json!({"other": null, keys::STATE_LABEL: "Normal"}));
            assert_eq!(metadata["$deleteFromPrimitiveList/finalizers"], json!(["example.com/second"]));
            assert_eq!(metadata["annotations"].get(keys::REARMED), Some(&Value::Null));
        }
        let forgotten = rearm(&pod, Rearm::Forget, Some(&hook));
        assert_eq!(forgotten["labels"], json!({keys::STATE_LABEL: "Normal"}));
        assert_eq!(forgotten["annotations"].get(keys::REARMED), Some(&Value::Null));
        // Their operator has taken them away.
        let (released, _) = two_operators();
        pod.metadata.labels = released.metadata.labels;
        pod.metadata.finalizers = released.metadata.finalizers;
        let metadata = rearm(&pod, Rearm::End, Some(&hook));
        assert_eq!(metadata["labels"], json!({keys::STATE_LABEL: "Normal"}));
        assert_eq!(metadata.get("$deleteFromPrimitiveList/finalizers"), None);
    }

    #[test]
    fn without_a_list_of_markers_none_is_taken_away() {
        let (mut pod, hook) = two_operators();
        pod.metadata.annotations.get_or_insert_default().insert(keys::REARMED.to_owned(), "true".to_owned());
        let metadata = rearm(&pod, Rearm::End, Some(&hook));
        assert_eq!(metadata["labels"], json!({keys::STATE_LABEL: "Normal"}));
        assert_eq!(metadata.get("$deleteFromPrimitiveList/finalizers"), None);
        assert_eq!(metadata["annotations"].get(keys::REARMED), Some(&Value::Null));
    }
}
