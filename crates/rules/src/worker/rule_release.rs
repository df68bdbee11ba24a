//! PodTransitionRules that are being deleted.
//!
//! They do not apply any more, whatever finalizers they have. KusionStack's kuperator puts a finalizer on every object and
//! removes it when the object is deleted. Where Podward has replaced it, nobody else would: the object, its namespace and
//! the resource definition could never be deleted. So the leader removes this finalizer, and no other, from objects that
//! are being deleted.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use podward_api::PodTransitionRule;
use podward_core::keys::RULE_PROTECTION;
use podward_runtime::retry::{API_SERVER, ApiCallError, api_call, delay_after};
use serde_json::json;

use super::super::context::RuleContext;

/// True if the object is being deleted.
pub(super) fn is_terminating(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Removes the finalizer of kuperator from an object that is being deleted. Repeats it until the object does not have
/// the finalizer.
pub(super) fn release(context: &Arc<RuleContext>, object: &impl ResourceExt) {
    let uid = object.uid().unwrap_or_default();
    if !is_protected(object) || !context.terminating.begin(&uid) {
        return;
    }
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let work = {
        let context = context.clone();
        async move {
            release_until_done(&context, &namespace, &name, &uid).await;
            context.terminating.end(&uid);
        }
    };
    context.spawn(work);
}

fn is_protected(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == RULE_PROTECTION)
}

async fn release_until_done(context: &RuleContext, namespace: &str, name: &str, uid: &str) {
    for failures in 1.. {
        let result = {
            let _permit = context.terminating.permit().await;
            remove_finalizer(&context.client, namespace, name, uid).await
        };
        match result {
            Ok(false) => return,
            Ok(true) => {
                tracing::info!(
                    namespace,
                    name,
                    "removed the finalizer {RULE_PROTECTION} from a deleted PodTransitionRule"
                );
                return;
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => tracing::warn!(
                namespace,
                name,
                %error,
                "could not remove the finalizer {RULE_PROTECTION} from a deleted PodTransitionRule; it is tried again"
            ),
        }
        tokio::time::sleep(delay_after(API_SERVER, failures)).await;
    }
}

/// Returns false if there was nothing to do: the object is gone, was replaced or has no such finalizer.
async fn remove_finalizer(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<bool, ApiCallError> {
    let api: Api<PodTransitionRule> = Api::namespaced(client.clone(), namespace);
    // The metadata alone, because the object may be one that can't be read.
    let Some(found) = api_call(api.get_metadata_opt(name)).await? else { return Ok(false) };
    if found.uid().as_deref() != Some(uid) || !is_terminating(&found) || !is_protected(&found) {
        return Ok(false);
    }
    let others = found.finalizers().iter().filter(|finalizer| *finalizer != RULE_PROTECTION);
    let patch = json!({
        "metadata": {
            "uid": uid,
            "resourceVersion": found.resource_version(),
            "finalizers": others.collect::<Vec<_>>(),
        },
    });
    match api_call(api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
