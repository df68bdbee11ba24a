//! What keeps a CloneSet from its rollout.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DynamicObject;
use podward_api::CloneSet;
use podward_api::clone_set::{CloneSetCondition, CloneSetHook};
use podward_core::cloneset::keys::{STATE_LABEL, STATE_TIME};
use podward_diagnosis::{Case, Cause, creation};

/// Returns the causes that a CloneSet and the states of its pods show, without those of its pods.
pub(super) fn causes(set: &CloneSet, pods: &[DynamicObject]) -> Vec<Cause> {
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let object = format!("cloneset {namespace}/{name}");
    let describe = format!("kubectl -n {namespace} describe cloneset {name}");
    let status = set.status.clone().unwrap_or_default();
    let found = |kind: &str, status: &str| {
        set.status.as_ref()?.conditions.iter().find(|it| it.type_ == kind && it.status == status)
    };
    let since = |condition: &CloneSetCondition| condition.last_transition_time.as_ref().map(|Time(at)| *at);
    let left_alone = found(CloneSetCondition::FAILED_UPDATE, "True").filter(|it| is_left_alone(set, it));
    let mut causes = Vec::new();
    if let Some(failed) = left_alone {
        let what = format!("nothing is done for the CloneSet: {}", failed.message);
        let cause = Cause::new(Case::Other, object.clone(), what).since(since(failed));
        causes.push(cause.next(describe.clone()));
    }
    // The generation is that of the last one for which a controller could do anything. It has seen a set that is invalid.
    let is_invalid = left_alone.is_some_and(|it| it.reason == CloneSetCondition::INVALID);
    if status.observed_generation < set.metadata.generation && !is_invalid {
        let perhaps = if causes.is_empty() { "" } else { "perhaps " };
        let what = format!(
            "{perhaps}no controller has seen the present CloneSet: neither OpenKruise nor Podward's cloneset-controller"
        );
        let next = "kubectl get pods -A -l 'app.kubernetes.io/name in (cloneset-controller, kruise)'";
        causes.push(Cause::new(Case::NoController, object.clone(), what).next(next));
    }
    if !causes.is_empty() {
        return causes;
    }
    if let Some(failed) = found(CloneSetCondition::FAILED_SCALE, "True") {
        // It holds failed deletes too.
        let other = failed.message.strip_prefix("could not ").filter(|rest| !rest.starts_with("create "));
        let cause = match other {
            _ if failed.reason == CloneSetCondition::WAITS => {
                let what = format!("a new pod waits: {}", failed.message);
                Cause::new(Case::Rollout, object.clone(), what).next(describe.clone())
            }
            Some(rest) => {
                Cause::new(Case::Other, object.clone(), format!("cannot {rest}")).next(describe.clone())
            }
            None => creation::refused(&failed.message, &namespace, &format!("cloneset/{name}")),
        };
        causes.push(cause.since(since(failed)));
    }
    if let Some(failed) = found(CloneSetCondition::FAILED_UPDATE, "True") {
        let what = format!("the update fails: {}", failed.message);
        causes.push(
            Cause::new(Case::Rollout, object.clone(), what).since(since(failed)).next(describe.clone()),
        );
    }
    if let Some(hooks) = &set.spec.lifecycle {
        for (states, hook, holds) in [
            (["PreparingDelete"].as_slice(), ("preDelete", &hooks.pre_delete), true),
            (&["PreparingUpdate"], ("inPlaceUpdate", &hooks.in_place_update), true),
            (&["PreparingNormal"], ("preNormal", &hooks.pre_normal), false),
            (&["Updated"], ("inPlaceUpdate", &hooks.in_place_update), false),
        ] {
            if let (name, Some(hook)) = hook {
                causes.extend(of_hook(&object, pods, states, (name, hook), holds));
            }
        }
    }
    let wanted = set.spec.replicas;
    let (updated, expected) = (status.updated_replicas, status.expected_updated_replicas);
    let numbers = format!(
        "{updated} of {expected} pods updated, {} available, {} in all",
        status.available_replicas, status.replicas
    );
    let is_done = updated >= expected && status.available_replicas >= wanted && status.replicas == wanted;
    if let Some(late) = found(CloneSetCondition::PROGRESSING, "False") {
        let what = format!("the rollout has made no progress: {} ({numbers})", late.message);
        causes.push(Cause::new(Case::Rollout, object, what).since(since(late)).next(describe));
    } else if set.spec.update_strategy.paused && updated < expected {
        let what = format!("the update is paused ({numbers})");
        let patch = r#"'{"spec":{"updateStrategy":{"paused":false}}}'"#;
        let next = format!("kubectl -n {namespace} patch cloneset {name} --type=merge -p {patch}");
        causes.push(Cause::new(Case::Paused, object, what).next(next));
    } else if !is_done && causes.is_empty() {
        let what = format!("the rollout waits for its pods ({numbers})");
        causes.push(Cause::new(Case::Rollout, object, what).next(describe));
    }
    causes
}

/// Returns true if the condition says that the controller does nothing for the set. One that is valid again was not seen since.
fn is_left_alone(set: &CloneSet, failed: &CloneSetCondition) -> bool {
    match &*failed.reason {
        CloneSetCondition::INVALID => set.check().is_err(),
        reason => reason == CloneSetCondition::NOT_RECONCILED,
    }
}

/// Returns the cause if pods in these states wait for a hook. `holds` is true if the hook holds them by its markers, and false if
/// they wait until it sets them.
fn of_hook(
    object: &str,
    pods: &[DynamicObject],
    states: &[&str],
    (name, hook): (&str, &CloneSetHook),
    holds: bool,
) -> Option<Cause> {
    let waits = |pod: &&DynamicObject| {
        let is_in_state = pod.labels().get(STATE_LABEL).is_some_and(|state| states.contains(&&**state));
        is_in_state && !markers(pod, hook, holds).is_empty()
    };
    let at = |pod: &DynamicObject| pod.annotations().get(STATE_TIME)?.parse::<Timestamp>().ok();
    let mut waiting: Vec<&DynamicObject> = pods.iter().filter(waits).collect();
    waiting.sort_by_key(|pod| at(pod));
    let (first, count) = (waiting.first()?, waiting.len());
    let namespace = first.namespace().unwrap_or_default();
    let (pod, markers) = (first.name_any(), markers(first, hook, holds).join(", "));
    let wait = if count == 1 { "1 pod waits".to_owned() } else { format!("{count} pods wait") };
    let does = if holds { format!("take {markers} off") } else { format!("set {markers}") };
    let what = format!("{wait} for the hook {name} to {does}, pod {pod} the longest");
    let next =
        format!("look at the system that uses {markers}; kubectl -n {namespace} get pod {pod} -o yaml");
    Some(Cause::new(Case::LifecycleHook, object.to_owned(), what).since(at(first)).next(next))
}

/// Returns the markers of a hook that the pod has (`present`), or lacks.
fn markers(pod: &DynamicObject, hook: &CloneSetHook, present: bool) -> Vec<String> {
    let labels =
        hook.labels_handler.iter().filter(|(key, value)| (pod.labels().get(*key) == Some(value)) == present);
    let finalizers = hook.finalizers_handler.iter().filter(|name| pod.finalizers().contains(name) == present);
    let labels = labels.map(|(key, value)| format!("label {key}={value}"));
    labels.chain(finalizers.map(|name| format!("finalizer {name}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: &Value, status: &Value) -> CloneSet {
        let mut object = json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
            "metadata": {"namespace": "shop", "name": "web", "generation": 2},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": {"observedGeneration": 2, "replicas": 3, "availableReplicas": 3, "updatedReplicas": 3,
                       "expectedUpdatedReplicas": 3},
        });
        for (part, change) in [("spec", spec), ("status", status)] {
            for (key, value) in change.as_object().unwrap() {
                object[part][key] = value.clone();
            }
        }
        serde_json::from_value(object).unwrap()
    }

    fn pod(name: &str, state: &str, since: &str, labels: &Value) -> DynamicObject {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "labels": labels, "annotations": {STATE_TIME: since}},
        });
        pod["metadata"]["labels"][STATE_LABEL] = json!(state);
        serde_json::from_value(pod).unwrap()
    }

    fn found(set: &CloneSet, pods: &[DynamicObject]) -> Vec<(Case, String)> {
        causes(set, pods).into_iter().map(|cause| (cause.case, cause.what)).collect()
    }

    #[test]
    fn hooks_are_named_with_their_markers_and_the_longest_wait() {
        let hooks = json!({"lifecycle": {
            "preDelete": {"labelsHandler": {"example.com/in-use": "true"}},
            "preNormal": {"finalizersHandler": ["example.com/checked"]},
        }});
        let (held, free) = (json!({"example.com/in-use": "true"}), json!({}));
        let pods = [
            pod("a", "PreparingDelete", "2026-01-01T10:01:00Z", &held),
            pod("b", "PreparingDelete", "2026-01-01T10:00:00Z", &held),
            pod("c", "PreparingDelete", "2026-01-01T09:00:00Z", &free),
            pod("d", "PreparingNormal", "2026-01-01T10:00:00Z", &free),
            pod("e", "Normal", "2026-01-01T10:00:00Z", &held),
        ];
        let expected = [
            "2 pods wait for the hook preDelete to take label example.com/in-use=true off, pod b the longest",
            "1 pod waits for the hook preNormal to set finalizer example.com/checked, pod d the longest",
        ];
        let expected = expected.map(|text| (Case::LifecycleHook, text.to_owned()));
        assert_eq!(found(&set(&hooks, &json!({"availableReplicas": 2})), &pods), expected);
    }

    #[test]
    fn its_own_state_is_explained() {
        assert_eq!(found(&set(&json!({}), &json!({})), &[]), []);
        let unseen = found(&set(&json!({}), &json!({"observedGeneration": 1})), &[]);
        assert_eq!(unseen[0].0, Case::NoController);
        let paused = json!({"updateStrategy": {"paused": true}});
        let expected = "the update is paused (1 of 3 pods updated, 3 available, 3 in all)".to_owned();
        assert_eq!(found(&set(&paused, &json!({"updatedReplicas": 1})), &[]), [(Case::Paused, expected)]);
        let late = json!({"updatedReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "slow"},
        ]});
        let expected = "the rollout has made no progress: slow (1 of 3 pods updated, 3 available, 3 in all)";
        assert_eq!(found(&set(&json!({}), &late), &[]), [(Case::Rollout, expected.to_owned())]);
        let refused = json!({"replicas": 2, "conditions": [
            {"type": "FailedScale", "status": "True", "message":
             "pods \"web-x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"},
        ]});
        assert_eq!(found(&set(&json!({}), &refused), &[])[0].0, Case::Quota);
    }

    #[test]
    fn a_set_that_cannot_be_reconciled_says_why() {
        let status = |reason: &str| {
            let failed =
                json!({"type": "FailedUpdate", "status": "True", "reason": reason, "message": "why"});
            json!({"observedGeneration": 1, "conditions": [failed]})
        };
        let told = [(Case::Other, "nothing is done for the CloneSet: why".to_owned())];
        let invalid = set(&json!({}), &status("Invalid"));
        assert_eq!(found(&invalid, &[]), told);
        let waits = found(&set(&json!({}), &status("NotReconciled")), &[]);
        assert_eq!(
            (&waits[..1], waits[1].0),
            (&told[..], Case::NoController),
            "the controller may be gone since"
        );
        let mut seen = set(&json!({}), &status("NotReconciled"));
        seen.status.as_mut().unwrap().observed_generation = Some(2);
        assert_eq!(found(&seen, &[]), told);
        // It was corrected, or fails in other ways.
        let template = json!({
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]},
        });
        let valid = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
        assert_eq!(found(&set(&valid, &status("Invalid")), &[])[0].0, Case::NoController);
        assert_eq!(found(&set(&json!({}), &status("Failed")), &[])[0].0, Case::NoController);
    }

    #[test]
    fn a_delete_that_fails_is_not_told_as_a_refused_creation() {
        let refused = |message: &str| {
            let failed = json!({"type": "FailedScale", "status": "True", "message": message});
            found(&set(&json!({}), &json!({"replicas": 4, "conditions": [failed]})), &[])
        };
        let denied = "could not delete pod shop/web-x: admission webhook \"policy.example.com\" denied the request: no";
        let expected =
            "cannot delete pod shop/web-x: admission webhook \"policy.example.com\" denied the request: no";
        assert_eq!(refused(denied), [(Case::Other, expected.to_owned())]);
        let handed = refused("could not make a pod the owner of PersistentVolumeClaim data-web-x: no");
        assert_eq!(handed[0].1, "cannot make a pod the owner of PersistentVolumeClaim data-web-x: no");
        let created = refused("could not create pod shop/web-x: something else");
        assert_eq!(created[0].0, Case::CreationFailed);
    }

    #[test]
    fn a_new_pod_that_waits_is_not_told_as_a_refused_creation() {
        let message = "pod web-x is terminating; the pod that replaces it is created when it is gone";
        let waits = json!({"type": "FailedScale", "status": "True", "reason": "Waits", "message": message});
        let set = set(&json!({}), &json!({"replicas": 2, "conditions": [waits]}));
        let found = causes(&set, &[]);
        let expected = (Case::Rollout, format!("a new pod waits: {message}"));
        assert_eq!((found[0].case, found[0].what.clone()), expected);
        assert_eq!(found[0].next, "kubectl -n shop describe cloneset web");
    }
}
