//! The webhook for DiscoveryBindings and ClusterRegistries. It denies invalid ones with the field, and connections with
//! Secrets that their writer may not read. It warns of another registry, or another part of one, for a binding that may have
//! instances in the one before, and for a ClusterRegistry.
//!
//! A connection sends the contents of its Secrets to the addresses in it. So whoever writes a connection needs the right
//! to get its Secrets. It opens no connections and resolves no names: a registry that does not answer is reported in the
//! status.

use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use podward_api::discovery_binding::{BINDING_FINALIZER, BindingRegistry};
use podward_api::registry_connection::RegistryConnection;
use podward_api::{ClusterRegistry, DiscoveryBinding, InvalidField};
use podward_discovery::{RegistrySecrets, check_mode, check_weight, connect};
use podward_registries::DirectDialer;
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, Webhook, WebhookRoute,
};
use podward_runtime::authn::{Access, Authorizer};
use serde::{Deserialize, Deserializer};
use tonic::Code;

static ROUTES: [WebhookRoute; 2] = [
    WebhookRoute {
        path: "/bindings",
        api: ("podward.io", "v1alpha1"),
        resources: &[("discoverybindings", "")],
        operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
    },
    WebhookRoute {
        path: "/registries",
        api: ("podward.io", "v1alpha1"),
        resources: &[("clusterregistries", "")],
        operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
    },
];

/// Reviews writes to DiscoveryBindings and ClusterRegistries.
#[derive(Debug)]
pub struct DiscoveryWebhook {
    authorizer: Authorizer,
    /// The namespace of the Secrets of ClusterRegistries.
    namespace: String,
}

/// An object of one of the kinds, or the error of parsing it.
#[derive(Debug)]
pub struct ParsedDiscovery(serde_json::Value);

impl<'de> Deserialize<'de> for ParsedDiscovery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(deserializer).map(Self)
    }
}

/// What a write changes.
struct Reviewed {
    terminating: bool,
    checked: Result<(), InvalidField>,
    connection: Option<RegistryConnection>,
    /// The namespace of the Secrets of the connection.
    namespace: String,
    /// The registry, in words.
    registry: Option<String>,
    /// True if a binding may have instances in the registry.
    has_instances: bool,
}

impl Reviewed {
    /// Warns of another registry. Instances stay in the one before, where nobody removes them, unless both names are of the
    /// same registry.
    fn warn_of_another_registry(&self, before: &Self, route: &WebhookRoute) -> Option<String> {
        let (old, new) = (before.registry.as_ref()?, self.registry.as_ref()?);
        if old == new || !before.has_instances {
            return None;
        }
        let (field, whose, other) = if route.path == ROUTES[0].path {
            (
                "spec.registry",
                "this binding",
                "create another DiscoveryBinding, and delete this one when that one is Synchronized",
            )
        } else {
            (
                "spec.connection",
                "the bindings that use it",
                "create another ClusterRegistry with other bindings, and delete the old ones when those are Synchronized",
            )
        };
        Some(format!(
            "{field}: unless {old} and {new} are the same registry, the instances of {whose} stay in the one before, and \
             nobody removes them. To move to another registry, {other}"
        ))
    }
}

/// Returns what names the registry of a binding. Its addresses may change.
fn registry_of(BindingRegistry { cluster_registry, connection }: &BindingRegistry) -> Option<String> {
    match (cluster_registry, connection) {
        (Some(name), _) => Some(format!("ClusterRegistry {name}")),
        (None, Some(connection)) => Some(connection.place()),
        (None, None) => None,
    }
}

impl DiscoveryWebhook {
    /// Asks the API server of `client` about rights. `namespace` is that of Podward.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { authorizer: Authorizer::new(client), namespace: namespace.to_owned() }
    }

    fn review(&self, route: &WebhookRoute, object: &ParsedDiscovery) -> Result<Reviewed, String> {
        let parsed = object.0.clone();
        if route.path == ROUTES[0].path {
            let object: DiscoveryBinding =
                serde_json::from_value(parsed).map_err(|error| format!("not a DiscoveryBinding: {error}"))?;
            let connection = object.spec.registry.connection.clone();
            let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
            return Ok(Reviewed {
                terminating: object.metadata.deletion_timestamp.is_some(),
                checked: check_binding(&object, connection.as_ref()),
                connection,
                registry: registry_of(&object.spec.registry),
                has_instances: finalizers.iter().any(|finalizer| finalizer == BINDING_FINALIZER),
                namespace: object.metadata.namespace.unwrap_or_default(),
            });
        }
        let object: ClusterRegistry =
            serde_json::from_value(parsed).map_err(|error| format!("not a ClusterRegistry: {error}"))?;
        let connection = object.spec.connection.clone();
        let checked = object.check().and_then(|()| try_connect(&connection, "spec.connection").map(drop));
        Ok(Reviewed {
            terminating: object.metadata.deletion_timestamp.is_some(),
            checked,
            registry: Some(connection.place()),
            // Which bindings use it is not known here.
            has_instances: true,
            connection: Some(connection),
            namespace: self.namespace.clone(),
        })
    }
}

fn check_binding(
    object: &DiscoveryBinding,
    connection: Option<&RegistryConnection>,
) -> Result<(), InvalidField> {
    object.check()?;
    let Some(connection) = connection else { return Ok(()) };
    let registry = try_connect(connection, "spec.registry.connection")?;
    check_mode(object.spec.mode, connection.kind, &*registry)?;
    check_weight(&object.spec.weight, &*registry)
}

/// Checks what only the client of the registry knows. Clients connect when they are used.
fn try_connect(
    connection: &RegistryConnection,
    field: &str,
) -> Result<Arc<dyn podward_registries::Registry>, InvalidField> {
    connect(connection, RegistrySecrets::default(), Arc::new(DirectDialer), field)
}

impl Webhook for DiscoveryWebhook {
    type Object = ParsedDiscovery;

    fn routes(&self) -> &'static [WebhookRoute] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        route: &'static WebhookRoute,
        request: &'a AdmissionRequest<'a, ParsedDiscovery>,
    ) -> AdmissionDecision<'a> {
        let Some(object) = &request.object else {
            let text = format!("the review of {} has no object", request.operation);
            return AdmissionResponse::bad_request(text).into();
        };
        let new = match self.review(route, object) {
            Ok(new) => new,
            Err(error) => return AdmissionResponse::bad_request(error).into(),
        };
        let old = request.old_object.as_ref().and_then(|old| self.review(route, old).ok());
        let moved = old.as_ref().and_then(|old| new.warn_of_another_registry(old, route));
        let warning = match &new.checked {
            Err(invalid) if !new.terminating => {
                // An error that the object had before does not deny the write, such as one of a finalizer.
                let known = old.as_ref().and_then(|old| old.checked.as_ref().err());
                if known != Some(invalid) {
                    return AdmissionResponse::forbid(invalid.to_string()).into();
                }
                Some(invalid.to_string())
            }
            _ => None,
        };
        let allowed = AdmissionResponse::allow().warn(warning.into_iter().chain(moved));
        let secrets: Vec<String> = match (&new.connection, old.and_then(|old| old.connection)) {
            (Some(connection), old) if old.as_ref() != Some(connection) => {
                connection.secrets().map(ToOwned::to_owned).collect()
            }
            _ => Vec::new(),
        };
        if secrets.is_empty() {
            return allowed.into();
        }
        AdmissionDecision::defer(move |_: Instant| async move {
            let user = request.user_info.identity();
            for name in secrets {
                let access = Access {
                    verb: "get",
                    group: "",
                    resource: "secrets",
                    subresource: "",
                    namespace: Some(&new.namespace),
                    name: Some(&name),
                };
                match self.authorizer.authorize(&user, access).await {
                    Ok(()) => {}
                    Err(status) if status.code() == Code::PermissionDenied => {
                        return AdmissionResponse::forbid(format!(
                            "{} may not get Secret {}/{name}, which Podward would send to the addresses of the registry; \
                             only a user who may read the Secret can write this connection",
                            user.user, new.namespace
                        ));
                    }
                    Err(status) => return AdmissionResponse::try_again(status.message().to_owned()),
                }
            }
            allowed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(spec: serde_json::Value) -> DiscoveryBinding {
        let mut object = serde_json::json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding", "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "registry": {"connection": {"kind": "Consul", "addresses": ["http://consul:8500"]}},
                "service": {"name": "web"}, "port": 80,
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn invalid_bindings_are_denied_with_the_field() {
        let connection = |value: serde_json::Value| serde_json::json!({"registry": {"connection": value}});
        for (spec, field) in [
            (serde_json::json!({"selector": {}}), "spec.selector"),
            (serde_json::json!({"registry": {}}), "spec.registry"),
            (serde_json::json!({"port": 0}), "spec.port"),
            (serde_json::json!({"weight": "many"}), "spec.weight"),
            // Consul's weights are whole numbers from 1 on.
            (serde_json::json!({"weight": "0"}), "spec.weight"),
            (serde_json::json!({"weight": "1.5"}), "spec.weight"),
            (serde_json::json!({"service": {"name": "${pod.color}"}}), "spec.service.name"),
            (serde_json::json!({"metadata": {"podward-uid": "x"}}), "spec.metadata[podward-uid]"),
            (serde_json::json!({"mode": "Steer"}), "spec.mode"),
            (
                connection(serde_json::json!({"kind": "Consul", "addresses": ["consul:8500"]})),
                "spec.registry.connection.addresses[0]",
            ),
            (
                connection(serde_json::json!({"kind": "Consul", "addresses": ["http://me:pw@consul:8500"]})),
                "spec.registry.connection.addresses[0]",
            ),
            (
                connection(serde_json::json!({
                    "kind": "Consul", "addresses": ["http://consul:8500"], "limits": {"changesPerSecond": 0},
                })),
                "spec.registry.connection.limits.changesPerSecond",
            ),
            (
                connection(serde_json::json!({"kind": "Http", "addresses": ["http://a"]})),
                "spec.registry.connection.http",
            ),
            (
                connection(serde_json::json!({"kind": "Etcd", "addresses": ["a:1"], "consul": {}})),
                "spec.registry.connection.consul",
            ),
        ] {
            let object = binding(spec.clone());
            let error = check_binding(&object, object.spec.registry.connection.as_ref()).unwrap_err();
            assert_eq!(error.field, field, "{spec}: {error}");
            assert!(!error.to_string().contains("pw"), "{error}");
        }
        let valid = binding(serde_json::json!({}));
        assert_eq!(check_binding(&valid, valid.spec.registry.connection.as_ref()), Ok(()));
    }
}
