//! The paths to which the API server sends reviews.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use podward_core::webhook_path::{PathSecret, WebhookPathState, route_of};
use serde_json::{Value, json};

/// The entries of a webhook configuration that call Podward's Services, and the secrets in their paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryPaths {
    version: Option<String>,
    entries: Vec<EntryPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryPath {
    name: String,
    route: &'static str,
    /// The secret in the path. `None` if there is no path, or it has another form.
    secret: Option<PathSecret>,
}

impl EntryPaths {
    fn of<'a>(
        metadata: &ObjectMeta,
        webhooks: impl Iterator<Item = (&'a String, &'a WebhookClientConfig)>,
    ) -> Self {
        let entries = webhooks.filter_map(|(name, config)| {
            // An entry with a URL leads to a process that somebody runs elsewhere.
            let service = config.service.as_ref()?;
            let route = route_of(name)?;
            let secret = service.path.as_deref().and_then(|path| PathSecret::of_path(path, route));
            Some(EntryPath { name: name.clone(), route, secret })
        });
        Self { version: metadata.resource_version.clone(), entries: entries.collect() }
    }

    /// Returns the secrets that the entries use.
    pub(crate) fn used(&self) -> impl Iterator<Item = &PathSecret> {
        self.entries.iter().filter_map(|entry| entry.secret.as_ref())
    }

    /// Returns the strategic merge patch that makes all entries use the current secret of `state`. `None` if they
    /// already do.
    pub(crate) fn patch(&self, state: &WebhookPathState) -> Option<Value> {
        let others: Vec<Value> = self
            .entries
            .iter()
            .filter_map(|entry| {
                let wanted = state.wanted(entry.secret.as_ref())?;
                let path = wanted.path(entry.route);
                Some(json!({"name": entry.name, "clientConfig": {"service": {"path": path}}}))
            })
            .collect();
        (!others.is_empty())
            .then(|| json!({"metadata": {"resourceVersion": self.version}, "webhooks": others}))
    }
}

impl From<&MutatingWebhookConfiguration> for EntryPaths {
    fn from(found: &MutatingWebhookConfiguration) -> Self {
        let webhooks = found.webhooks.iter().flatten();
        Self::of(&found.metadata, webhooks.map(|webhook| (&webhook.name, &webhook.client_config)))
    }
}

impl From<&ValidatingWebhookConfiguration> for EntryPaths {
    fn from(found: &ValidatingWebhookConfiguration) -> Self {
        let webhooks = found.webhooks.iter().flatten();
        Self::of(&found.metadata, webhooks.map(|webhook| (&webhook.name, &webhook.client_config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_with_other_paths_are_patched() {
        let [old, new, next] = [1, 2, 3].map(|number| PathSecret::of_random([number; 32]));
        let data = [("current", new.reveal()), ("next", next.reveal())];
        let state =
            WebhookPathState::read(|key| data.iter().find(|(name, _)| *name == key).map(|(_, text)| *text))
                .unwrap();
        let entry = |name: &str, path: Option<String>| {
            let service = json!({"namespace": "podward-system", "name": "x", "path": path});
            json!({"name": name, "clientConfig": {"service": service}, "sideEffects": "None",
                "admissionReviewVersions": []})
        };
        let paths = |entries: Value| {
            let found: ValidatingWebhookConfiguration = serde_json::from_value(json!({
                "metadata": {"name": "podward-validating", "resourceVersion": "7"}, "webhooks": entries,
            }))
            .unwrap();
            EntryPaths::from(&found)
        };
        let found = paths(json!([
            entry("delete.validating.podward.io", Some(old.path("/delete"))),
            entry("eviction.validating.podward.io", Some(new.path("/evict"))),
            entry("eviction-elsewhere.validating.podward.io", Some(next.path("/evict"))),
            entry("create.validating.podward.io", None),
            entry("update.validating.podward.io", Some(new.path("/delete"))),
            entry("other.example.com", Some("/other".to_owned())),
        ]));
        assert_eq!(found.used().cloned().collect::<Vec<_>>(), [old, new.clone(), next]);
        let patched = |name: &str, route: &str| json!({"name": name, "clientConfig": {"service": {"path": new.path(route)}}});
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [
                patched("delete.validating.podward.io", "/delete"),
                patched("create.validating.podward.io", "/validate"),
                patched("update.validating.podward.io", "/validate"),
            ],
        });
        assert_eq!(found.patch(&state), Some(expected));
        let right = paths(json!([entry("rules.validating.podward.io", Some(new.path("/rules")))]));
        assert_eq!(right.patch(&state), None);
    }
}
