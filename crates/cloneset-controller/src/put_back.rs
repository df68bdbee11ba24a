//! Finalizers that the set has put back on pods that terminate now.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use podward_api::CloneSet;
use podward_core::cloneset::{PodStep, PutBack, Rearm, State, keys};

use crate::context::Context;
use crate::errors::{SetError, first_problem};
use crate::execute::{InPlace, carry_out};
use crate::pod::Pod;
use crate::template::Owner;

/// Removes finalizers that the set has put back to ask the hook `inPlaceUpdate` again from pods that terminate. If their hook
/// is gone, nobody else removes them. The hook `preDelete` keeps its own.
///
/// # Errors
/// Fails if a request fails. The other pods are written.
pub(crate) async fn remove(context: &Context, set: &CloneSet, owner: &Owner) -> Result<(), SetError> {
    let hook = set.spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_delete.as_ref());
    let kept: BTreeSet<&String> = hook.iter().flat_map(|hook| &hook.finalizers_handler).collect();
    let step = PodStep { rearm: Some(Rearm::End), ..PodStep::default() };
    let in_place =
        InPlace { change: None, revision: "", grace_seconds: 0, hook: None, now: Timestamp::now() };
    let mut failed = None;
    for pod in context.pods.of(&owner.uid).iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
        if context.stop.is_cancelled() {
            break;
        }
        let Some(put_back) = asked_again(pod) else { continue };
        let mut pod = Pod::clone(pod);
        // The step removes those that the pod has.
        pod.metadata.finalizers.get_or_insert_default().retain(|name| !kept.contains(name));
        if put_back.finalizers.iter().all(|name| !pod.finalizers().contains(name)) {
            continue;
        }
        let _work = context.progress.begin();
        let written = carry_out((&context.client, &context.pods), &pod, &step, in_place, || ()).await;
        failed = first_problem(failed, written.err());
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

    use podward_core::cloneset::{PutBack, keys};
    use podward_runtime::progress::Progress;
    use serde_json::{Value, json};

    use crate::reconcile::reconcile;
    use crate::test_api::{ApiServer, set};

    const FIRST: &str = "example.com/first";
    const SECOND: &str = "example.com/second";
    const REMOVED: &str = "$deleteFromPrimitiveList/finalizers";

    /// Returns the patches of a pod that another writer deletes, in three reconciliations. The set has put back both
    /// finalizers.
    async fn patches(labels: Value, previous: Option<&str>, spec: Value) -> Vec<Value> {
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
        let mut change = json!({"replicas": 0});
        change["lifecycle"] = spec;
        let set = Arc::new(set(change));
        for _ in 0..3 {
            reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap();
        }
        server.patched_pods()
    }

    fn in_state(state: &str) -> Value {
        json!({"app": "web", keys::STATE_LABEL: state})
    }

    /// Their hook may be gone, so that nobody else removes them.
    #[tokio::test]
    async fn finalizers_that_were_put_back_do_not_keep_a_pod_that_others_delete() {
        let deleted = [("PreparingUpdate", None), ("PreparingDelete", Some("PreparingUpdate"))];
        for (state, previous) in deleted {
            let found = patches(in_state(state), previous, Value::Null).await;
            let [patch] = &found[..] else { panic!("{state}: {found:?}") };
            assert_eq!(patch["metadata"][REMOVED], json!([FIRST, SECOND]));
            assert_eq!(patch["metadata"]["resourceVersion"], "1");
            assert_eq!(patch["metadata"]["annotations"], json!({keys::REARMED: null}));
        }
    }

    #[tokio::test]
    async fn finalizers_stay_that_another_hook_has_or_that_may_be_those_of_operators() {
        let pre_delete = |names: &[&str]| json!({"preDelete": {"finalizersHandler": names}});
        let found = patches(in_state("PreparingUpdate"), None, pre_delete(&[FIRST])).await;
        let [patch] = &found[..] else { panic!("{found:?}") };
        assert_eq!(patch["metadata"][REMOVED], json!([SECOND]));
        assert!(patches(in_state("PreparingUpdate"), None, pre_delete(&[FIRST, SECOND])).await.is_empty());
        for (state, previous) in [("Normal", None), ("PreparingDelete", Some("Normal"))] {
            assert!(patches(in_state(state), previous, Value::Null).await.is_empty());
        }
    }
}
