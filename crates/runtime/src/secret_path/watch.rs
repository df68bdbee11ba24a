//! The watch of the Secret with the accepted secrets.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use podward_core::webhook_path::WebhookPathState;
use tokio_util::sync::CancellationToken;

use super::accepted::AcceptedSecrets;
use crate::admin::ReadinessCondition;

/// Keeps `accepted` as the Secret `name` says until `stop`, and sets `known` when it was read first.
///
/// A Secret that is deleted or can't be used changes nothing: the lifecycle-controller writes it again, with the secret
/// that the webhook configurations use.
pub(super) fn follow(
    accepted: AcceptedSecrets,
    client: Client,
    namespace: &str,
    name: &str,
    known: ReadinessCondition,
    stop: CancellationToken,
) {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let full_name = format!("{namespace}/{name}");
    let mut changes = Box::pin(watcher::watch_object(api, name).default_backoff());
    tokio::spawn(async move {
        while let Some(found) = stop.run_until_cancelled(changes.next()).await.flatten() {
            match found {
                Ok(Some(secret)) => observe(&accepted, &full_name, &secret, &known),
                Ok(None) => tracing::warn!(
                    "Secret {full_name} does not exist; waiting for the lifecycle-controller (--webhook-paths)"
                ),
                Err(error) => tracing::warn!("could not watch Secret {full_name}, trying again: {error}"),
            }
        }
    });
}

fn observe(accepted: &AcceptedSecrets, name: &str, secret: &Secret, known: &ReadinessCondition) {
    let data = secret.data.as_ref();
    let get = |key: &str| std::str::from_utf8(&data?.get(key)?.0).ok();
    match WebhookPathState::read(get) {
        Ok(state) => {
            let secrets: Vec<_> = state.accepted().cloned().collect();
            let count = secrets.len();
            if accepted.replace(secrets) {
                tracing::info!(count, "the accepted secrets of webhook paths have changed");
            }
            known.set(true);
        }
        Err(error) => tracing::warn!(
            "Secret {name} can't be used, and the accepted secrets stay as they are: {error}; delete it, and the \
             lifecycle-controller writes it anew"
        ),
    }
}
