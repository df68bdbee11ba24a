//! Finalizers that the set has put back on pods that terminate now.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::{PutBack, State, keys};

use crate::context::Context;
use crate::errors::{SetError, call, first_problem};
use crate::pod::Pod;
use crate::template::{Owner, PodPatch};

/// Removes finalizers that the set has put back to ask the hook `inPlaceUpdate` again from pods that terminate. If
/// their hook is gone, nobody else removes them. Those that `inPlaceUpdate` or `preDelete` names stay: their operators
/// may not be done.
///
/// # Errors
/// Fails if a request fails. The other pods are written.
pub(crate) async fn remove(context: &Context, set: &CloneSet, owner: &Owner) -> Result<(), SetError> {
    let hooks = set.spec.lifecycle.iter().flat_map(|it| [&it.in_place_update, &it.pre_delete]).flatten();
    let kept: BTreeSet<&String> = hooks.flat_map(|hook| &hook.finalizers_handler).collect();
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &owner.namespace);
    let mut failed = None;
    for pod in context.pods.of(&owner.uid).iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
        if context.stop.is_cancelled() {
            break;
        }
        let Some(put_back) = asked_again(pod) else { continue };
        // The list on the pod stays: those that are kept now may be removed later.
        let left = put_back.left(pod.labels(), pod.finalizers()).finalizers.into_iter();
        let finalizers = left.filter(|name| !kept.contains(name)).map(|name| (name, false)).collect();
        let patch = PodPatch { finalizers, ..PodPatch::of(pod) };
        if patch.is_empty() {
            continue;
        }
        let _work = context.progress.begin();
        let name = pod.name_any();
        let (params, body) = (PatchParams::default(), Patch::Strategic(patch.to_json()));
        let request = api.patch(&name, &params, &body);
        match call("write pod", &format!("{}/{name}", owner.namespace), request).await {
            Ok(written) => context.pods.store(written),
            Err(error) => failed = first_problem(failed, Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Returns what was put back on the pod, if it waits for the hook `inPlaceUpdate`, or did before its deletion began.
fn asked_again(pod: &Pod) -> Option<PutBack> {
    let put_back = PutBack::parse(pod.annotations().get(keys::REARMED)?);
    let state = pod.labels().get(keys::STATE_LABEL)?.parse().ok()?;
    let state = match state {
        State::PreparingDelete => pod.annotations().get(keys::PREVIOUS_STATE)?.parse().ok()?,
        state => state,
    };
    (state == State::PreparingUpdate).then_some(put_back)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use podward_runtime::progress::Progress;
    use serde_json::{Value, json};

    use super::*;
    use crate::reconcile::reconcile;
    use crate::test_api::{ApiServer, set};

    const FIRST: &str = "example.com/first";
    const SECOND: &str = "example.com/second";
    const REMOVED: &str = "$deleteFromPrimitiveList/finalizers";

    /// Returns the patches of a pod that another writer deletes, in two reconciliations of each of these sets. The set
    /// has put back both finalizers.
    async fn patches(labels: Value, previous: Option<&str>, sets: Vec<CloneSet>) -> Vec<Value> {
        let server = ApiServer::default();
        let context = server.context(Progress::default());
        let put_back =
            PutBack { finalizers: [FIRST, SECOND].map(str::to_owned).into(), ..PutBack::default() };
        let owner = json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "set-uid",
            "controller": true,
        });
        let mut pod = json!({"metadata": {
            "name": "web-a", "namespace": "test", "uid": "a", "resourceVersion": "1", "ownerReferences": [owner],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "finalizers": [FIRST, SECOND, "example.com/other"], "annotations": {keys::REARMED: put_back.text()},
        }});
        if let Some(previous) = previous {
            pod["metadata"]["annotations"][keys::PREVIOUS_STATE] = json!(previous);
        }
        server.store_pod("web-a", pod.clone());
        context.pods.deliver(serde_json::from_value(pod).unwrap());
        for set in sets.into_iter().map(Arc::new) {
            for _ in 0..2 {
                reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
            }
        }
        server.patched_pods()
    }

    fn in_state(state: &str) -> Value {
        json!({"app": "web", keys::STATE_LABEL: state})
    }

    fn with_hooks(hooks: Value) -> CloneSet {
        let mut change = json!({"replicas": 0});
        change["lifecycle"] = hooks;
        set(change)
    }

    fn deleted(mut set: CloneSet) -> CloneSet {
        set.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        set
    }

    /// Their hook is gone, so that nobody else removes them.
    #[tokio::test]
    async fn finalizers_that_were_put_back_do_not_keep_a_pod_that_others_delete() {
        let states = [("PreparingUpdate", None), ("PreparingDelete", Some("PreparingUpdate"))];
        for (state, previous) in states {
            let found = patches(in_state(state), previous, vec![with_hooks(Value::Null)]).await;
            let [patch] = &found[..] else { panic!("{state}: {found:?}") };
            let expected = json!({"uid": "a", "resourceVersion": "1", REMOVED: [FIRST, SECOND]});
            assert_eq!(patch["metadata"], expected);
        }
    }

    /// The owner waits for its pods, if they are deleted before it.
    #[tokio::test]
    async fn finalizers_that_were_put_back_do_not_keep_a_set_that_is_deleted() {
        let sets = vec![deleted(with_hooks(Value::Null))];
        let found = patches(in_state("PreparingUpdate"), None, sets).await;
        let [patch] = &found[..] else { panic!("{found:?}") };
        assert_eq!(patch["metadata"][REMOVED], json!([FIRST, SECOND]));
        let hook = deleted(with_hooks(json!({"inPlaceUpdate": {"finalizersHandler": [FIRST, SECOND]}})));
        assert!(patches(in_state("PreparingUpdate"), None, vec![hook]).await.is_empty());
    }

    #[tokio::test]
    async fn finalizers_stay_that_a_hook_has_or_that_may_be_those_of_operators() {
        for hook in ["preDelete", "inPlaceUpdate"] {
            let hook = |names: &[&str]| with_hooks(json!({hook: {"finalizersHandler": names}}));
            let found = patches(in_state("PreparingUpdate"), None, vec![hook(&[FIRST])]).await;
            let [patch] = &found[..] else { panic!("{found:?}") };
            assert_eq!(patch["metadata"][REMOVED], json!([SECOND]));
            let sets = vec![hook(&[FIRST, SECOND])];
            assert!(patches(in_state("PreparingUpdate"), None, sets).await.is_empty());
        }
        for (state, previous) in [("Normal", None), ("PreparingDelete", Some("Normal"))] {
            let sets = vec![with_hooks(Value::Null)];
            assert!(patches(in_state(state), previous, sets).await.is_empty());
        }
    }

    #[tokio::test]
    async fn a_finalizer_that_stayed_is_removed_when_its_hook_is_gone() {
        let hook = with_hooks(json!({"preDelete": {"finalizersHandler": [FIRST]}}));
        let found = patches(in_state("PreparingUpdate"), None, vec![hook, with_hooks(Value::Null)]).await;
        let removed: Vec<_> = found.iter().map(|patch| &patch["metadata"][REMOVED]).collect();
        assert_eq!(removed, [&json!([SECOND]), &json!([FIRST])]);
    }
}
