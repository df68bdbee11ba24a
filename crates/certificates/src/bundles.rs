//! The authorities that the API server trusts when it calls webhooks.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The webhooks of a webhook configuration, by name, and their `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundles {
    version: Option<String>,
    entries: Vec<(String, Option<ByteString>)>,
}

impl Bundles {
    fn of<'a>(
        metadata: &ObjectMeta,
        webhooks: impl Iterator<Item = (&'a String, &'a WebhookClientConfig)>,
    ) -> Self {
        let entries = webhooks.map(|(name, config)| (name.clone(), config.ca_bundle.clone()));
        Bundles { version: metadata.resource_version.clone(), entries: entries.collect() }
    }

    /// Returns the PEM text of all authorities that the entries trust.
    pub(crate) fn text(&self) -> String {
        let bundles = self.entries.iter().filter_map(|(_, bundle)| bundle.as_ref());
        bundles.map(|ByteString(bytes)| format!("{}\n", String::from_utf8_lossy(bytes))).collect()
    }

    /// Returns the strategic merge patch that makes all entries trust `authorities` (PEM). `None` if they already do.
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

impl From<&MutatingWebhookConfiguration> for Bundles {
    fn from(found: &MutatingWebhookConfiguration) -> Self {
        let webhooks = found.webhooks.iter().flatten();
        Bundles::of(&found.metadata, webhooks.map(|webhook| (&webhook.name, &webhook.client_config)))
    }
}

impl From<&ValidatingWebhookConfiguration> for Bundles {
    fn from(found: &ValidatingWebhookConfiguration) -> Self {
        let webhooks = found.webhooks.iter().flatten();
        Bundles::of(&found.metadata, webhooks.map(|webhook| (&webhook.name, &webhook.client_config)))
    }
}
