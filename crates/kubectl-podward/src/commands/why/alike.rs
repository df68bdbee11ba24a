//! Pods that are alike: what holds for one of them holds for all, so that one is read.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::ResourceExt;
use kube::api::DynamicObject;
use podward_core::keys::CONTROL_LABEL;
use podward_diagnosis::Cause;
use serde_json::{Value, json};

/// A pod that is read, and the pods that are like it.
pub(super) struct Alike {
    /// The pod as it was read: the oldest one.
    pub(super) object: DynamicObject,
    pub(super) pod: Pod,
    pub(super) others: Vec<Pod>,
}

/// Groups pods that are alike.
pub(super) fn group(mut pods: Vec<(DynamicObject, Pod)>) -> Vec<Alike> {
    pods.sort_by_key(|(_, pod)| (pod.creation_timestamp().map(|time| time.0), pod.name_any()));
    let mut groups: Vec<Alike> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (object, pod) in pods {
        let key = state(&pod);
        if let Some(group) = key.as_ref().and_then(|key| groups.get_mut(*places.get(key)?)) {
            group.others.push(pod);
            continue;
        }
        places.extend(key.map(|key| (key, groups.len())));
        groups.push(Alike { object, pod, others: Vec::new() });
    }
    groups
}

impl Alike {
    /// Returns all pods, with the causes of the one that was read.
    pub(super) fn with_causes(self, causes: Vec<Cause>) -> Vec<(Pod, Vec<Cause>)> {
        let name = self.pod.name_any();
        let of_other = |other: Pod| {
            let mut causes = causes.clone();
            for cause in &mut causes {
                cause.what = cause.what.replace(&name, &other.name_any());
            }
            (other, causes)
        };
        let others: Vec<_> = self.others.into_iter().map(of_other).collect();
        [(self.pod, causes)].into_iter().chain(others).collect()
    }
}

/// Returns what pods that are alike have in common. `None` for a pod that is like no other: Podward or a hook may hold it,
/// it is being deleted, or each pod of its workload has a name or a volume that matters.
fn state(pod: &Pod) -> Option<String> {
    let owner =
        pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let is_one_of_many = matches!(owner.kind.as_str(), "ReplicaSet" | "Job")
        && pod.metadata.deletion_timestamp.is_none()
        && !pod.labels().contains_key(CONTROL_LABEL)
        && !spec.volumes.iter().flatten().any(|volume| volume.ephemeral.is_some());
    let conditions = status
        .conditions
        .iter()
        .flatten()
        .map(|condition| json!([condition.type_, condition.status, condition.reason, condition.message]));
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let common = json!([
        owner.uid,
        spec.node_name,
        status.phase,
        status.reason,
        conditions.collect::<Vec<_>>(),
        containers.map(container).collect::<Vec<_>>(),
    ]);
    is_one_of_many.then(|| common.to_string())
}

fn container(status: &ContainerStatus) -> Value {
    json!([
        status.name,
        status.image,
        status.ready,
        status.restart_count > 0,
        status.state.as_ref().map(reason),
        status.last_state.as_ref().map(reason),
    ])
}

fn reason(state: &ContainerState) -> Value {
    let waiting = state.waiting.as_ref().map(|waiting| &waiting.reason);
    let ended = state.terminated.as_ref().map(|ended| (&ended.reason, ended.exit_code));
    json!([state.running.is_some(), waiting, ended])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, created: &str, change: Value) -> (DynamicObject, Pod) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": name, "creationTimestamp": created, "labels": {},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true},
                ],
            },
            "spec": {"containers": []},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no CPU"},
            ]},
        });
        json_patch::merge(&mut pod, &change);
        (serde_json::from_value(pod.clone()).unwrap(), serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn only_pods_in_the_same_state_are_alike() {
        let (early, late) = ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        let groups = group(vec![
            pod("b", late, json!({})),
            pod("a", early, json!({})),
            pod("on-a-node", late, json!({"spec": {"nodeName": "n1"}})),
            pod("opted-in", late, json!({"metadata": {"labels": {CONTROL_LABEL: "true"}}})),
            pod("also-opted-in", late, json!({"metadata": {"labels": {CONTROL_LABEL: "true"}}})),
            pod("of-another", late, json!({"metadata": {"ownerReferences": null}})),
            pod("other-words", late, json!({"status": {"conditions": null}})),
        ]);
        let names = groups.iter().map(|group| (group.pod.name_any(), group.others.len()));
        let expected = [
            ("a", 1),
            ("also-opted-in", 0),
            ("of-another", 0),
            ("on-a-node", 0),
            ("opted-in", 0),
            ("other-words", 0),
        ];
        let expected = expected.map(|(name, others)| (name.to_owned(), others));
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}
