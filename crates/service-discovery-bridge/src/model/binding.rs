//! A `DiscoveryBinding` with its selector and templates compiled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use podward_api::discovery_binding::{
    BindingMode, BindingPhases, DiscoveryBinding, DiscoveryBindingSpec, ForeignChanges, PodField,
    RELEASE_REMOVALS_ANNOTATION, Template, parse_weight,
};
use podward_api::{InvalidField, compile_selector};
use podward_core::hooks::{Selector, hook_finalizer};
use podward_registries::{Instance, Owner, ServiceKey};

use super::bound_pod::BoundPod;

/// Namespace and name of a binding. Displayed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BindingKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A valid binding.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) key: BindingKey,
    pub(crate) generation: Option<i64>,
    /// True if it is being deleted: its instances are deregistered.
    pub(crate) deleting: bool,
    pub(crate) mode: BindingMode,
    pub(crate) phases: BindingPhases,
    pub(crate) foreign_changes: ForeignChanges,
    pub(crate) interval: Duration,
    /// The wait for caches of clients, if the binding states one.
    pub(crate) client_cache: Option<Duration>,
    pub(crate) removal_limit: RemovalPercent,
    /// The removals that somebody has released.
    pub(crate) released: Option<String>,
    /// The finalizer of its hook.
    pub(crate) finalizer: String,
    pub(crate) spec: DiscoveryBindingSpec,
    selector: Selector,
    service: [Template; 4],
    weight: Template,
    metadata: Vec<(String, Template)>,
}

/// The greatest share of the instances of a service that may be removed at once, in percent.
pub(crate) type RemovalPercent = u32;

/// The instance that a registry should show for a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Desired {
    pub(crate) service: ServiceKey,
    pub(crate) instance: Instance,
    pub(crate) owner: Owner,
}

impl Desired {
    /// Returns the service and the instance.
    pub(crate) fn target(&self) -> (&ServiceKey, &Instance) {
        (&self.service, &self.instance)
    }

    /// Returns a number that differs for other values, but for an accident of 1 in 2^64.
    pub(crate) fn fingerprint(&self) -> u64 {
        let Self { service, instance, owner } = self;
        let Instance { id, host, port, cluster, weight, metadata, in_service, may_return: _, version } =
            instance;
        let mut hasher = DefaultHasher::new();
        (service, owner, id, host, port, cluster).hash(&mut hasher);
        (weight.to_bits(), metadata, in_service, version).hash(&mut hasher);
        hasher.finish()
    }
}

impl Binding {
    /// Compiles a binding.
    ///
    /// # Errors
    /// Fails if it is invalid.
    pub(crate) fn new(object: DiscoveryBinding) -> Result<Self, InvalidField> {
        object.check()?;
        let DiscoveryBinding { metadata, spec, .. } = object;
        let invalid = |field: &str, problem: String| InvalidField { field: field.to_owned(), problem };
        let selector =
            compile_selector(&spec.selector).map_err(|error| invalid("spec.selector", error.to_string()))?;
        let template = |field: &str, text: &str| {
            Template::parse(text).map_err(|error| invalid(field, error.to_string()))
        };
        let service = &spec.service;
        let service = [
            template("spec.service.name", &service.name)?,
            template("spec.service.namespace", &service.namespace)?,
            template("spec.service.group", &service.group)?,
            template("spec.service.cluster", &service.cluster)?,
        ];
        let weight = template("spec.weight", &spec.weight)?;
        let more =
            spec.metadata.iter().map(|(key, text)| Ok((key.clone(), template("spec.metadata", text)?)));
        let more = more.collect::<Result<_, InvalidField>>()?;
        let key = BindingKey {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
        };
        Ok(Self {
            finalizer: hook_finalizer(&format!("{}.{}", key.namespace, key.name)),
            key,
            generation: metadata.generation,
            deleting: metadata.deletion_timestamp.is_some(),
            mode: spec.mode,
            phases: spec.phases,
            foreign_changes: spec.drift.foreign_changes,
            interval: Duration::from_secs(spec.drift.interval_seconds.into()),
            client_cache: spec.client_cache_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            removal_limit: spec.removal_limit_percent,
            released: metadata
                .annotations
                .and_then(|mut annotations| annotations.remove(RELEASE_REMOVALS_ANNOTATION)),
            spec,
            selector,
            service,
            weight,
            metadata: more,
        })
    }

    /// Returns whether the binding selects the pod.
    pub(crate) fn selects(&self, pod: &BoundPod) -> bool {
        !self.deleting && self.is_about(pod)
    }

    /// Returns whether the binding selects the pod, or did until it was deleted.
    pub(crate) fn is_about(&self, pod: &BoundPod) -> bool {
        pod.namespace == self.key.namespace && self.selector.matches(&pod.labels)
    }

    /// Returns the instance that the registry should show for a pod while it is in service. `cluster` is the id of the
    /// Kubernetes cluster. An error is a text for people.
    ///
    /// # Errors
    /// Fails if the pod lacks a field that the binding names, or if a value is invalid.
    pub(crate) fn desired(&self, pod: &BoundPod, cluster: &str) -> Result<Desired, String> {
        let missing = |what: &str, field: &PodField| {
            format!(
                "{what} names {field}, which pod {} does not have; add it to the pod, or write ${{{field}:-default}}",
                pod.name
            )
        };
        let render = |what: &str, template: &Template| {
            template.render(|field| pod.field(field)).map_err(|field| missing(what, &field))
        };
        let [name, namespace, group, of_cluster] = &self.service;
        let service = ServiceKey {
            namespace: render("spec.service.namespace", namespace)?,
            group: render("spec.service.group", group)?,
            name: render("spec.service.name", name)?,
        };
        if service.name.trim().is_empty() {
            return Err(format!("the name of the service of pod {} is empty", pod.name));
        }
        if pod.ip.is_empty() {
            return Err(format!("pod {} has no address yet", pod.name));
        }
        let port = pod.port(&self.spec.port).ok_or_else(|| {
            format!("no container of pod {} has a port {:?}; correct spec.port", pod.name, self.spec.port)
        })?;
        let weight = parse_weight(&render("spec.weight", &self.weight)?)
            .map_err(|problem| format!("spec.weight: {problem} for pod {}", pod.name))?;
        let owner = Owner {
            cluster: cluster.to_owned(),
            namespace: pod.namespace.clone(),
            binding: self.key.name.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let mut metadata = BTreeMap::new();
        for (key, template) in &self.metadata {
            metadata.insert(key.clone(), render(&format!("spec.metadata[{key}]"), template)?);
        }
        owner.mark(&mut metadata);
        let instance = Instance {
            id: owner.instance_id(port),
            host: pod.ip.clone(),
            port,
            cluster: render("spec.service.cluster", of_cluster)?,
            weight,
            metadata,
            in_service: true,
            may_return: false,
            version: None,
        };
        Ok(Desired { service, instance, owner })
    }

    /// Returns the service that is the same for all pods that the binding may select. `None` if its name depends on the pod.
    /// A registry that cannot list services is searched there for instances of pods that are gone.
    pub(crate) fn service_without_pods(&self) -> Option<ServiceKey> {
        let of_all = |field: &PodField| match field {
            PodField::Namespace => Some(Cow::Borrowed(self.key.namespace.as_str())),
            PodField::Label(key) => {
                let labels = self.spec.selector.match_labels.as_ref()?;
                labels.get(key).map(|text| Cow::Borrowed(text.as_str()))
            }
            _ => None,
        };
        let [name, namespace, group, _] = &self.service;
        let render = |template: &Template| template.render(of_all).ok();
        Some(ServiceKey { namespace: render(namespace)?, group: render(group)?, name: render(name)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn binding(change: Value) -> Binding {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": "web"}},
            "registry": {"clusterRegistry": "corp"},
            "service": {"name": "${pod.labels['app']}"},
            "port": "http",
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": "web"}, "spec": spec,
        });
        Binding::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    pub(crate) fn pod(uid: &str) -> BoundPod {
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": uid, "labels": {"app": "web"}},
            "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        BoundPod::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_service_of_pods_that_are_gone() {
        let named =
            |name: &str| binding(json!({"service": {"name": name, "group": "g"}})).service_without_pods();
        let named = |name| named(name).map(|service| service.name);
        assert_eq!(named("${pod.namespace}-web").as_deref(), Some("shop-web"));
        assert_eq!(named("${pod.labels['app']}").as_deref(), Some("web"));
        assert_eq!(named("${pod.labels['track']}-web"), None);
        assert_eq!(named("${pod.name}"), None);
    }

    #[test]
    fn the_instance_of_a_pod() {
        let desired = binding(json!({"metadata": {"zone": "${pod.labels['zone']:-none}"}, "weight": "2"}))
            .desired(&pod("u1"), "c1")
            .unwrap();
        assert_eq!(desired.service.name, "web");
        let Instance { id, host, port, weight, metadata, .. } = &desired.instance;
        assert_eq!((id.as_str(), host.as_str(), *port), ("shop.web-0.u1.8080", "10.0.0.7", 8080));
        assert!((weight - 2.0).abs() < f64::EPSILON);
        assert_eq!(metadata["zone"], "none");
        assert_eq!(desired.instance.owner(), Some(desired.owner));
    }

    #[test]
    fn what_a_pod_lacks_is_named() {
        for (change, words) in [
            (json!({"service": {"name": "${pod.labels['team']}"}}), "pod.labels['team']"),
            (json!({"port": "grpc"}), "has a port String(\"grpc\")"),
            (json!({"weight": "${pod.labels['app']}"}), "is not a number from 0 to 10000"),
        ] {
            let error = binding(change).desired(&pod("u1"), "c1").unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn only_pods_of_the_namespace_are_selected() {
        let mut other = pod("u1");
        assert!(binding(json!({})).selects(&other));
        other.namespace = "bank".to_owned();
        assert!(!binding(json!({})).selects(&other));
    }
}
