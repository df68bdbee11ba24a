//! The webhook configurations of the cluster, mutating and validating.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// A mutating or validating webhook configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct WebhookConfiguration {
    pub(super) name: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) hooks: Vec<Webhook>,
}

/// The fields of a webhook that the doctor checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Webhook {
    pub(super) name: String,
    /// Namespace and name of the Service that the API server calls. `None` for a URL.
    pub(super) service: Option<(String, String)>,
    /// The path at the Service, which contains a secret. Never show it.
    pub(super) path: Option<String>,
    pub(super) bundle: Vec<u8>,
    pub(super) fails_closed: bool,
    pub(super) rules: Vec<RuleWithOperations>,
    pub(super) namespaces: Option<LabelSelector>,
}

/// The label with the name of a namespace. The API server sets it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Webhook {
    /// Returns true if the webhook excludes `namespace` by name.
    pub(super) fn excludes(&self, namespace: &str) -> bool {
        let expressions =
            self.namespaces.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
        expressions
            .filter(|expression| expression.key == NAME_LABEL && expression.operator == "NotIn")
            .any(|expression| expression.values.iter().flatten().any(|name| name == namespace))
    }

    /// Returns true if the API server calls the webhook for `operation` on `resource` of the core group.
    pub(super) fn intercepts(&self, operation: &str, resource: &str) -> bool {
        let has = |list: &Option<Vec<String>>, words: &[&str]| {
            list.iter().flatten().any(|word| words.contains(&word.as_str()))
        };
        // `*` matches resources without subresources, `pods/*` and `*/*` match subresources too.
        let resources: &[&str] = match resource.split_once('/') {
            None => &[resource, "*", "*/*", "pods/*"],
            Some((_, sub)) => &[resource, "*/*", "pods/*", &format!("*/{sub}")],
        };
        self.rules.iter().any(|rule| {
            has(&rule.api_groups, &["", "*"])
                && has(&rule.operations, &[operation, "*"])
                && has(&rule.resources, resources)
        })
    }

    fn new(
        name: String,
        client: WebhookClientConfig,
        policy: Option<String>,
        rules: Option<Vec<RuleWithOperations>>,
        namespaces: Option<LabelSelector>,
    ) -> Self {
        Self {
            name,
            path: client.service.as_ref().and_then(|service| service.path.clone()),
            service: client.service.map(|service| (service.namespace, service.name)),
            bundle: client.ca_bundle.map(|bundle| bundle.0).unwrap_or_default(),
            fails_closed: policy.as_deref() != Some("Ignore"),
            rules: rules.unwrap_or_default(),
            namespaces,
        }
    }
}

impl From<MutatingWebhook> for Webhook {
    fn from(hook: MutatingWebhook) -> Self {
        Self::new(hook.name, hook.client_config, hook.failure_policy, hook.rules, hook.namespace_selector)
    }
}

impl From<ValidatingWebhook> for Webhook {
    fn from(hook: ValidatingWebhook) -> Self {
        Self::new(hook.name, hook.client_config, hook.failure_policy, hook.rules, hook.namespace_selector)
    }
}

impl From<MutatingWebhookConfiguration> for WebhookConfiguration {
    fn from(mut found: MutatingWebhookConfiguration) -> Self {
        let hooks = found.webhooks.take().into_iter().flatten().map(Webhook::from).collect();
        Self { name: found.name_any(), annotations: found.metadata.annotations.unwrap_or_default(), hooks }
    }
}

impl From<ValidatingWebhookConfiguration> for WebhookConfiguration {
    fn from(mut found: ValidatingWebhookConfiguration) -> Self {
        let hooks = found.webhooks.take().into_iter().flatten().map(Webhook::from).collect();
        Self { name: found.name_any(), annotations: found.metadata.annotations.unwrap_or_default(), hooks }
    }
}

/// Returns all webhook configurations of the cluster.
///
/// # Errors
/// When they cannot be listed.
pub(super) async fn list(client: &Client) -> Result<Vec<WebhookConfiguration>> {
    let all = ListParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = mutating.list(&all).await.context("list MutatingWebhookConfigurations")?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let validating = validating.list(&all).await.context("list ValidatingWebhookConfigurations")?;
    let mutating = mutating.items.into_iter().map(WebhookConfiguration::from);
    Ok(mutating.chain(validating.items.into_iter().map(WebhookConfiguration::from)).collect())
}
