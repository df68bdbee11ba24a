//! The admission webhook that refuses pods or does not answer: where it is configured, and what is behind it.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cause::{Case, Cause};
use crate::words::between;

/// A webhook of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredWebhook {
    /// `Validating` or `Mutating`.
    kind: &'static str,
    configuration: String,
    name: String,
    client: WebhookClientConfig,
}

/// Returns the webhooks of these configurations.
#[must_use]
pub fn configured(
    validating: Vec<ValidatingWebhookConfiguration>,
    mutating: Vec<MutatingWebhookConfiguration>,
) -> Vec<ConfiguredWebhook> {
    let validating = validating.into_iter().flat_map(|it| {
        let webhooks = it.webhooks.into_iter().flatten().map(|webhook| (webhook.name, webhook.client_config));
        of("Validating", it.metadata, webhooks.collect())
    });
    let mutating = mutating.into_iter().flat_map(|it| {
        let webhooks = it.webhooks.into_iter().flatten().map(|webhook| (webhook.name, webhook.client_config));
        of("Mutating", it.metadata, webhooks.collect())
    });
    validating.chain(mutating).collect()
}

fn of(
    kind: &'static str,
    metadata: ObjectMeta,
    webhooks: Vec<(String, WebhookClientConfig)>,
) -> impl Iterator<Item = ConfiguredWebhook> {
    let configuration = metadata.name.unwrap_or_default();
    let made =
        move |(name, client)| ConfiguredWebhook { kind, configuration: configuration.clone(), name, client };
    webhooks.into_iter().map(made)
}

/// Returns whether the cause is an admission webhook.
#[must_use]
pub fn is_webhook(cause: &Cause) -> bool {
    matches!(cause.case, Case::WebhookDenied | Case::WebhookFailed)
}

/// Returns namespace and name of the Service of the webhook in the cause, if it has one.
#[must_use]
pub fn service_of(cause: &Cause, webhooks: &[ConfiguredWebhook]) -> Option<(String, String)> {
    if let Some((namespace, name)) = between(&cause.what, "(Service ", ")").and_then(|of| of.split_once('/'))
    {
        return Some((namespace.to_owned(), name.to_owned()));
    }
    let [webhook] = find(cause, webhooks)[..] else { return None };
    let service = webhook.client.service.as_ref()?;
    Some((service.namespace.clone(), service.name.clone()))
}

/// Adds to the cause where the webhook is configured, and the endpoints of its Service. `slices` is `None` if they could not
/// be read.
#[must_use]
pub fn explained(
    mut cause: Cause,
    webhooks: &[ConfiguredWebhook],
    slices: Option<&[EndpointSlice]>,
) -> Cause {
    let found = find(&cause, webhooks);
    let service = service_of(&cause, webhooks).map(|(namespace, name)| format!("Service {namespace}/{name}"));
    let behind = service.as_ref().map(|service| match slices {
        Some(slices) => format!("{service}, {}", endpoints(slices)),
        None => service.clone(),
    });
    if let (Some(service), Some(behind)) = (&service, &behind) {
        cause.what = cause.what.replacen(&format!("({service})"), &format!("({behind})"), 1);
    }
    if let ([webhook], Case::WebhookFailed, None) = (&found[..], cause.case, &service) {
        let kind = webhook.kind.to_lowercase();
        cause.next = format!("kubectl describe {kind}webhookconfiguration {}", webhook.configuration);
    }
    cause.evidence.extend(found.into_iter().map(|webhook| {
        let place = match &behind {
            Some(behind) if webhook.place() == service => behind.clone(),
            _ => webhook.place().unwrap_or_default(),
        };
        format!("{}WebhookConfiguration {}: {place}", webhook.kind, webhook.configuration)
    }));
    cause
}

impl ConfiguredWebhook {
    /// Returns `Service NAMESPACE/NAME` or the URL.
    fn place(&self) -> Option<String> {
        let service = self.client.service.as_ref();
        let service = service.map(|it| format!("Service {}/{}", it.namespace, it.name));
        service.or_else(|| self.client.url.clone())
    }
}

/// Returns the webhooks with the name in the cause. Names are unique only within a configuration: the place in the cause
/// tells them apart, if it has one.
fn find<'w>(cause: &Cause, webhooks: &'w [ConfiguredWebhook]) -> Vec<&'w ConfiguredWebhook> {
    let Some(name) = cause.object.strip_prefix("webhook ") else { return Vec::new() };
    let named: Vec<_> = webhooks.iter().filter(|webhook| webhook.name == name).collect();
    let is_there = |webhook: &&ConfiguredWebhook| {
        webhook.place().is_some_and(|place| cause.what.contains(&format!("({place})")))
    };
    let there: Vec<_> = named.iter().copied().filter(is_there).collect();
    if there.is_empty() { named } else { there }
}

fn endpoints(slices: &[EndpointSlice]) -> String {
    let all = slices.iter().flat_map(|slice| &slice.endpoints);
    let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
    let ready = all.clone().filter(|it| is_ready(it.conditions.as_ref().and_then(|it| it.ready))).count();
    match all.count() {
        0 => "no endpoint".to_owned(),
        all => format!("{ready} of {all} endpoints ready"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::creation::refused;

    fn webhooks(client: serde_json::Value) -> Vec<ConfiguredWebhook> {
        let configuration = json!({"metadata": {"name": "shop-policy"}, "webhooks": [{
            "name": "policy.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client,
        }]});
        configured(vec![serde_json::from_value(configuration).unwrap()], vec![])
    }

    #[test]
    fn the_endpoints_of_the_service_are_counted() {
        let message = r#"Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.shop.svc:443/?timeout=1s": context deadline exceeded"#;
        let cause = || refused(message, "shop", "deployment/web");
        let webhooks = webhooks(json!({"service": {"namespace": "shop", "name": "policy"}}));
        assert_eq!(service_of(&cause(), &[]), Some(("shop".to_owned(), "policy".to_owned())));
        let endpoint = |ready: bool| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
        let slice = json!([{"addressType": "IPv4", "endpoints": [endpoint(true), endpoint(false)]}]);
        let slices: Vec<EndpointSlice> = serde_json::from_value(slice).unwrap();
        for (slices, words) in [
            (
                Some(slices.as_slice()),
                "(Service shop/policy, 1 of 2 endpoints ready) does not answer: context",
            ),
            (Some([].as_slice()), "(Service shop/policy, no endpoint) does not answer: context"),
            (None, "(Service shop/policy) does not answer: context"),
        ] {
            let explained = explained(cause(), &webhooks, slices);
            assert!(explained.what.contains(words), "{}", explained.what);
            assert!(
                explained.evidence[1]
                    .starts_with("ValidatingWebhookConfiguration shop-policy: Service shop/policy")
            );
        }
    }

    #[test]
    fn webhooks_with_the_same_name_are_told_apart_by_their_place() {
        let mut webhooks = webhooks(json!({"url": "https://10.0.0.1/"}));
        webhooks.extend(super::tests::webhooks(json!({"service": {"namespace": "shop", "name": "policy"}})));
        let failed = r#"failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.shop.svc:443/?timeout=1s": EOF"#;
        let cause = explained(refused(failed, "shop", "deployment/web"), &webhooks, Some(&[]));
        let place = "ValidatingWebhookConfiguration shop-policy: Service shop/policy, no endpoint";
        assert_eq!(cause.evidence[1..], [place]);
        let denied = r#"admission webhook "policy.example.com" denied the request: no"#;
        let cause = explained(refused(denied, "shop", "deployment/web"), &webhooks, None);
        assert_eq!(cause.evidence.len(), 3);
    }

    #[test]
    fn a_webhook_at_a_url_is_found_by_its_name() {
        let message = r#"admission webhook "policy.example.com" denied the request: no"#;
        let url = "https://10.0.0.1:8443/check";
        let webhooks = webhooks(json!({"url": url}));
        let cause = explained(refused(message, "shop", "deployment/web"), &webhooks, None);
        assert_eq!(cause.evidence[1], format!("ValidatingWebhookConfiguration shop-policy: {url}"));
        let failed = format!(
            r#"failed calling webhook "policy.example.com": failed to call webhook: Post "{url}?timeout=1s": EOF"#
        );
        let cause = explained(refused(&failed, "shop", "deployment/web"), &webhooks, None);
        assert_eq!(
            cause.what,
            format!("cannot create pods: admission webhook policy.example.com ({url}) does not answer: EOF")
        );
        assert_eq!(cause.next, "kubectl describe validatingwebhookconfiguration shop-policy");
    }
}
