//! Whom the API server trusts when it calls webhooks.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use serde_json::{Value, json};

/// The entries of a webhook configuration, by name, and their `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundles {
    version: Option<String>,
    entries: Vec<(String, Option<ByteString>)>,
}

impl Bundles {
    /// The strategic merge patch after which all entries trust `authorities` (PEM); `None` if they do.
    pub(crate) fn patch(&self, authorities: &str) -> Option<Value> {
        let wanted = ByteString(authorities.as_bytes().to_vec());
        let others: Vec<Value> = self
            .entries
            .iter()
            .filter(|(_, bundle)| bundle.as_ref() != Some(&wanted))
            .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": wanted}}))
            .collect();
        (!others.is_empty())
            .then(|| json!({"metadata": {"resourceVersion": self.version}, "webhooks": others}))
    }
}

fn entry(name: &str, config: &WebhookClientConfig) -> (String, Option<ByteString>) {
    (name.to_owned(), config.ca_bundle.clone())
}

impl From<&MutatingWebhookConfiguration> for Bundles {
    fn from(found: &MutatingWebhookConfiguration) -> Self {
        let entries = found.webhooks.iter().flatten();
        Bundles {
            version: found.metadata.resource_version.clone(),
            entries: entries.map(|webhook| entry(&webhook.name, &webhook.client_config)).collect(),
        }
    }
}

impl From<&ValidatingWebhookConfiguration> for Bundles {
    fn from(found: &ValidatingWebhookConfiguration) -> Self {
        let entries = found.webhooks.iter().flatten();
        Bundles {
            version: found.metadata.resource_version.clone(),
            entries: entries.map(|webhook| entry(&webhook.name, &webhook.client_config)).collect(),
        }
    }
}
