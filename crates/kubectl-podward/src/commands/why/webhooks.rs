//! The admission webhooks that refuse the pods of a workload.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use podward_diagnosis::Cause;
use podward_diagnosis::webhooks::{configured, explained, is_webhook, service_of};
use serde::de::DeserializeOwned;

use crate::api::list_all;

/// Adds to causes that are webhooks where these are configured, and what is behind their Services. Adds to `notes` what
/// could not be read.
pub(super) async fn explain(client: &Client, causes: &mut [Cause], notes: &mut Vec<String>) {
    if !causes.iter().any(is_webhook) {
        return;
    }
    let (validating, mutating) = futures::join!(
        all::<ValidatingWebhookConfiguration>(client, "ValidatingWebhookConfigurations"),
        all::<MutatingWebhookConfiguration>(client, "MutatingWebhookConfigurations"),
    );
    let webhooks = configured(or_note(validating, notes), or_note(mutating, notes));
    for cause in causes.iter_mut().filter(|cause| is_webhook(cause)) {
        let slices = match service_of(cause, &webhooks) {
            Some((namespace, name)) => match slices(client, &namespace, &name).await {
                Ok(slices) => Some(slices),
                Err(note) => {
                    notes.push(note);
                    None
                }
            },
            None => None,
        };
        *cause = explained(cause.clone(), &webhooks, slices.as_deref());
    }
}

fn or_note<T>(read: Result<Vec<T>, String>, notes: &mut Vec<String>) -> Vec<T> {
    read.unwrap_or_else(|note| {
        notes.push(note);
        Vec::new()
    })
}

async fn all<T>(client: &Client, what: &str) -> Result<Vec<T>, String>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    read(&Api::all(client.clone()), ListParams::default(), what).await
}

async fn slices(client: &Client, namespace: &str, service: &str) -> Result<Vec<EndpointSlice>, String> {
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    read(&Api::namespaced(client.clone(), namespace), params, "EndpointSlices").await
}

async fn read<T>(api: &Api<T>, params: ListParams, what: &str) -> Result<Vec<T>, String>
where
    T: Clone + Debug + DeserializeOwned,
{
    list_all(api, params).await.map_err(|error| format!("{what} could not be read: {error:#}"))
}
