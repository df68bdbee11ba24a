//! The removal of state for pods that are gone or not opted in any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::Store;
use podward_core::{NoRules, PodHooks, plan};
use podward_kube_util::{ApiError, CachedPod, PodKey, now};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::report::GonePod;
use crate::write::{ConditionChange, PodWrite};

/// The interval between two runs.
const INTERVAL: Duration = Duration::from_secs(60);

/// Removes the state of pods that are not in `store` any more, until `stop`.
pub(crate) async fn run(store: Store<CachedPod>, context: Arc<Context>, stop: CancellationToken) {
    let exists = |key: &PodKey| store.get(&key.object_ref()).is_some();
    while stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        let owners: HashSet<String> =
            store.state().iter().filter_map(|pod| pod.controller().map(|owner| owner.uid.clone())).collect();
        context.deciders.deletions.retain(|uid| owners.contains(uid));
        context.cache.retain(exists);
        context.retries.retain(exists);
        context.services.retain(exists);
        context.gone_services.retain(exists);
        for GonePod { key, uid, is_held_by_hook } in context.report.retain(exists) {
            context.deciders.hooks.forget(&uid);
            context.deciders.rules.forget_pod(&uid);
            context.deciders.deletions.forget(&key);
            // A pod that is not opted in any more is missing in the store, too.
            if is_held_by_hook && let Err(error) = release_finalizers(&key, &uid, &context).await {
                tracing::warn!(%error, pod = %key, "finalizers of hooks may remain on a pod that is not opted in any more");
            }
        }
    }
}

/// Removes the finalizers of hooks from a pod that is not opted in any more. Nothing else would remove them. Does
/// nothing if the pod is gone, was replaced or is opted in.
///
/// # Errors
/// If a request to the API server fails.
pub(crate) async fn release_finalizers(key: &PodKey, uid: &str, context: &Context) -> Result<(), ApiError> {
    let Some(pod) = context.writer.get(key).await? else { return Ok(()) };
    let view = pod.view();
    if pod.uid() != uid || view.is_controlled() {
        return Ok(());
    }
    let plan = plan(&view, &PodHooks::none(), &NoRules, now());
    if !plan.is_empty() {
        context.writer.write(&pod, PodWrite::new(&plan, [], ConditionChange::Keep)).await?;
    }
    Ok(())
}
