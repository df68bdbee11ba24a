//! The webhooks of the cluster, mutating and validating ones alike.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// A configuration and its webhooks.
#[derive(Clone, Debug, Default)]
pub(super) struct Configuration {
    pub(super) name: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) hooks: Vec<Hook>,
}

/// What matters of a webhook.
#[derive(Clone, Debug, Default)]
pub(super) struct Hook {
    pub(super) name: String,
    /// Namespace and name of the Service that it leads to.
    pub(super) service: Option<(String, String)>,
    pub(super) bundle: Vec<u8>,
    pub(super) fails_closed: bool,
    pub(super) rules: Vec<RuleWithOperations>,
    pub(super) namespaces: Option<LabelSelector>,
}

/// The label that the API server puts on each namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Hook {
    /// Whether its selector leaves the namespace out by its name.
    pub(super) fn leaves_out(&self, namespace: &str) -> bool {
        let expressions =
            self.namespaces.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
        expressions
            .filter(|expression| expression.key == NAME_LABEL && expression.operator == "NotIn")
            .any(|expression| expression.values.iter().flatten().any(|name| name == namespace))
    }

    /// Whether it is asked about `operation` on `resource` of the core group.
    pub(super) fn is_about(&self, operation: &str, resource: &str) -> bool {
        let has = |list: &Option<Vec<String>>, words: &[&str]| {
            list.iter().flatten().any(|word| words.contains(&word.as_str()))
        };
        // `*` stands for resources without subresources; `pods/*` and `*/*` for those too.
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
            service: client.service.map(|service| (service.namespace, service.name)),
            bundle: client.ca_bundle.map(|bundle| bundle.0).unwrap_or_default(),
            fails_closed: policy.as_deref() != Some("Ignore"),
            rules: rules.unwrap_or_default(),
            namespaces,
        }
    }
}

impl From<MutatingWebhook> for Hook {
    fn from(hook: MutatingWebhook) -> Self {
        Self::new(hook.name, hook.client_config, hook.failure_policy, hook.rules, hook.namespace_selector)
    }
}

impl From<ValidatingWebhook> for Hook {
    fn from(hook: ValidatingWebhook) -> Self {
        Self::new(hook.name, hook.client_config, hook.failure_policy, hook.rules, hook.namespace_selector)
    }
}

impl From<MutatingWebhookConfiguration> for Configuration {
    fn from(mut found: MutatingWebhookConfiguration) -> Self {
        let hooks = found.webhooks.take().into_iter().flatten().map(Hook::from).collect();
        Self { name: found.name_any(), annotations: found.metadata.annotations.unwrap_or_default(), hooks }
    }
}

impl From<ValidatingWebhookConfiguration> for Configuration {
    fn from(mut found: ValidatingWebhookConfiguration) -> Self {
        let hooks = found.webhooks.take().into_iter().flatten().map(Hook::from).collect();
        Self { name: found.name_any(), annotations: found.metadata.annotations.unwrap_or_default(), hooks }
    }
}

/// All of the cluster.
pub(super) async fn list(client: &Client) -> Result<Vec<Configuration>> {
    let all = ListParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = mutating.list(&all).await.context("list MutatingWebhookConfigurations")?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let validating = validating.list(&all).await.context("list ValidatingWebhookConfigurations")?;
    let mutating = mutating.items.into_iter().map(Configuration::from);
    Ok(mutating.chain(validating.items.into_iter().map(Configuration::from)).collect())
}
