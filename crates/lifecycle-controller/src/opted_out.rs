//! Pods that are not opted in and have finalizers of hooks.
//!
//! The mutating webhook removes these finalizers together with the opt-in label, and the leader removes them if the
//! webhook was down. If nothing of Podward ran, for example because somebody deleted a pod in an outage, a new leader
//! finds the pods here: its watch contains only pods that are opted in.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use podward_core::hooks::has_hook_finalizer;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_core::{NoRules, PodHooks, plan};
use podward_kube_util::{ApiError, PodKey, now};
use podward_runtime::retry::{API_SERVER, ApiCallError, api_call, delay_after};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::write::{ConditionChange, PodWrite};

/// The number of pods in a page of the list.
const PAGE: u32 = 500;

/// A pod that is not opted in and has a finalizer of a hook: its key and its UID.
pub(crate) type HeldPod = (PodKey, String);

/// Removes the finalizers of hooks from all pods of the cluster that are not opted in. Lists the metadata of these pods
/// in pages. Repeats what fails, with back-off, until `stop`. A pod that cannot be written does not delay the others.
pub(crate) async fn release_all(client: Client, context: &Context, stop: &CancellationToken) {
    let mut held: Option<Vec<HeldPod>> = None;
    for attempt in 1.. {
        let work = async {
            match held.take() {
                Some(pods) => Some(release(pods, context).await),
                None => match list_held(&client).await {
                    Ok(pods) => Some(release(pods, context).await),
                    Err(error) => {
                        tracing::warn!(%error, "could not list the pods that are not opted in; the list is repeated");
                        None
                    }
                },
            }
        };
        let Some(left) = stop.run_until_cancelled(work).await else { return };
        if left.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        held = left;
        let pause = tokio::time::sleep(delay_after(API_SERVER, attempt));
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Returns the pods that are not opted in and have a finalizer of a hook.
async fn list_held(client: &Client) -> Result<Vec<HeldPod>, ApiCallError> {
    let api: Api<Pod> = Api::all(client.clone());
    let mut params = ListParams::default().labels(&format!("{CONTROL_LABEL}!={CONTROL_VALUE}")).limit(PAGE);
    let mut held = Vec::new();
    loop {
        let page = api_call(api.list_metadata(&params)).await?;
        held.extend(page.items.iter().filter(|pod| has_hook_finalizer(pod.finalizers())).map(id));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(held),
        }
    }
}

fn id(pod: &PartialObjectMeta<Pod>) -> HeldPod {
    let key = PodKey { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() };
    (key, pod.uid().unwrap_or_default())
}

/// Removes the finalizers of hooks from `pods`. Returns the pods for which it failed.
pub(crate) async fn release(pods: Vec<HeldPod>, context: &Context) -> Vec<HeldPod> {
    let mut left = Vec::new();
    for (key, uid) in pods {
        match release_finalizers(&key, &uid, context).await {
            Ok(true) => {
                tracing::info!(pod = %key, "removed the finalizers of hooks from a pod that is not opted in");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, pod = %key, "could not remove the finalizers of hooks from a pod that is not opted in; it is tried again");
                left.push((key, uid));
            }
        }
    }
    left
}

/// Removes the finalizers of hooks from a pod that is not opted in. Nothing else would remove them. Returns whether
/// there were any. Does nothing if the pod is gone, was replaced or is opted in.
///
/// # Errors
/// If a request to the API server fails.
async fn release_finalizers(key: &PodKey, uid: &str, context: &Context) -> Result<bool, ApiError> {
    let Some(pod) = context.writer.get(key).await? else { return Ok(false) };
    let view = pod.view();
    if pod.uid() != uid || view.is_controlled() {
        return Ok(false);
    }
    let plan = plan(&view, &PodHooks::none(), &NoRules, now());
    if plan.is_empty() {
        return Ok(false);
    }
    context.writer.write(&pod, PodWrite::new(&plan, [], ConditionChange::Keep)).await?;
    Ok(true)
}
