//! The sources of traffic that have a pod: Services, hooks, and the registries of DiscoveryBindings.

use std::collections::BTreeMap;

use kube::ResourceExt;
use podward_api::DiscoveryBinding;
use podward_core::Pod;
use podward_core::hooks::hook_of_consumer_key;
use podward_diagnosis::traffic::ServiceEndpoint;
use serde::Serialize;
use serde_json::Value;

use super::binding_names::{hook_of, registry_of};

/// A source of traffic.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrafficSource {
    pub(super) source: String,
    /// Whether it sends the pod traffic, or may do so.
    pub(super) has_pod: bool,
    /// What is known about it.
    pub(super) detail: String,
}

impl TrafficSource {
    /// Returns the text for people.
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.source, self.detail)
    }
}

/// Returns the sources that know the pod. `bindings` are those of its namespace, if they could be read.
pub(super) fn sources(
    endpoints: Vec<ServiceEndpoint>,
    pod: &Pod,
    bindings: &[DiscoveryBinding],
) -> Vec<TrafficSource> {
    let services = endpoints.into_iter().map(|endpoint| {
        let ServiceEndpoint { service, ready, serving, terminating, .. } = endpoint;
        TrafficSource {
            source: format!("Service {service}"),
            has_pod: ready,
            detail: format!("ready {ready}, serving {serving}, terminating {terminating}"),
        }
    });
    let mut sources: Vec<TrafficSource> = services.collect();
    // A Service can have several EndpointSlices that say the same.
    sources.dedup();
    sources.extend(consumers(pod, bindings));
    sources
}

/// Returns the consumers that hold the pod or are expected to. Each one has its finalizer on the pod while it may send traffic.
fn consumers(pod: &Pod, bindings: &[DiscoveryBinding]) -> Vec<TrafficSource> {
    let view = pod.view();
    let expected = view.expected_finalizers().unwrap_or_default();
    // Name and hook, by finalizer.
    let mut consumers: BTreeMap<&str, (String, &str)> =
        view.protection_finalizers().map(|finalizer| (finalizer, (finalizer.to_owned(), ""))).collect();
    for (consumer, finalizer) in expected.missing(&[]) {
        let named = match hook_of_consumer_key(consumer) {
            Some(hook) => (of_hook(hook, &pod.metadata.namespace, bindings), hook),
            None => (consumer.to_owned(), ""),
        };
        consumers.insert(finalizer, named);
    }
    let evidence = pod.metadata.annotations.evidence.as_deref();
    let evidence: Value = evidence.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let source = |(finalizer, (source, hook)): (&str, (String, &str))| {
        let has_pod = view.finalizers.iter().any(|present| present == finalizer);
        let record = &evidence[hook];
        let detail = match (has_pod, record["level"].as_str(), record["detail"].as_str()) {
            (true, ..) => "has the pod".to_owned(),
            (false, Some(level), Some(detail)) => format!("does not have the pod ({level}: {detail})"),
            (false, ..) => "does not have the pod".to_owned(),
        };
        TrafficSource { source, has_pod, detail }
    };
    consumers.into_iter().map(source).collect()
}

/// Returns the text for a hook. The hook of a DiscoveryBinding is that of its registry.
fn of_hook(hook: &str, namespace: &str, bindings: &[DiscoveryBinding]) -> String {
    let is_its_hook = |binding: &&DiscoveryBinding| hook_of(namespace, &binding.name_any()) == hook;
    match bindings.iter().find(is_its_hook) {
        Some(binding) => {
            let (service, registry) = (&binding.spec.service.name, registry_of(binding));
            format!("hook {hook} (service {service} of {registry})")
        }
        None => format!("hook {hook}"),
    }
}

/// Returns who has the pod and who does not, if the sources disagree.
pub(super) fn disagreement(sources: &[TrafficSource]) -> Option<String> {
    let (having, lacking): (Vec<_>, Vec<_>) = sources.iter().partition(|source| source.has_pod);
    let names =
        |of: Vec<&TrafficSource>| of.into_iter().map(|it| it.source.as_str()).collect::<Vec<_>>().join(", ");
    match having.is_empty() || lacking.is_empty() {
        true => None,
        false => Some(format!(
            "the sources disagree: {} may send the pod traffic, {} does not",
            names(having),
            names(lacking)
        )),
    }
}

#[cfg(test)]
mod tests {
    use podward_core::keys;
    use serde_json::json;

    use super::*;

    fn pod(finalizers: &[&str]) -> Pod {
        let expected = json!({"expectedFinalizers": {
            "LifecycleHook//traffic-controller": "prot.podopslifecycle.kusionstack.io/t",
            "LifecycleHook//shop.web": "prot.podopslifecycle.kusionstack.io/w",
        }});
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": "web-0", "uid": "u", "finalizers": finalizers,
                "annotations": {
                    keys::AVAILABLE_CONDITIONS: expected.to_string(),
                    keys::EVIDENCE: json!({"shop.web": {"level": "BOUNDED", "detail": "waited"}}).to_string(),
                },
            },
        }))
        .unwrap()
    }

    fn binding() -> DiscoveryBinding {
        serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "registry": {"connection": {"kind": "Consul", "addresses": ["http://c:8500"]}},
                "service": {"name": "web"}, "port": 80,
            },
        }))
        .unwrap()
    }

    #[test]
    fn sources_are_named_with_what_they_have() {
        let endpoint = ServiceEndpoint {
            service: "web".to_owned(),
            slice: "web-1".to_owned(),
            manager: None,
            ready: true,
            serving: true,
            terminating: false,
        };
        let twice = vec![endpoint.clone(), ServiceEndpoint { slice: "web-2".to_owned(), ..endpoint }];
        let mine = "prot.podopslifecycle.kusionstack.io/mine";
        let held = pod(&["prot.podopslifecycle.kusionstack.io/t", mine, "other"]);
        let found = sources(twice, &held, &[binding()]);
        let texts: Vec<String> = found.iter().map(TrafficSource::text).collect();
        assert_eq!(
            texts,
            [
                "Service web: ready true, serving true, terminating false",
                "prot.podopslifecycle.kusionstack.io/mine: has the pod",
                "hook traffic-controller: has the pod",
                "hook shop.web (service web of Consul at http://c:8500): does not have the pod (BOUNDED: waited)",
            ]
        );
        assert_eq!(
            disagreement(&found).unwrap(),
            "the sources disagree: Service web, prot.podopslifecycle.kusionstack.io/mine, hook traffic-controller may send the \
             pod traffic, hook shop.web (service web of Consul at http://c:8500) does not"
        );
        assert_eq!(disagreement(&sources(Vec::new(), &pod(&[]), &[])), None, "nobody has it");
        assert_eq!(disagreement(&found[..2]), None);
    }
}
