//! `DiscoveryBinding`: pods that are instances of a service in a registry outside Kubernetes.
// `KubeSchema` copies the struct into the body of a function, where `pub` is unreachable.
#![allow(unreachable_pub)]

mod check;
mod status;
mod template;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lifecycle_hook::DeadlinePolicy;
use crate::registry_connection::RegistryConnection;
use crate::schema::known_format;

pub use check::parse_weight;
pub use status::{BindingStatus, HeldRemovals};
pub use template::{InvalidTemplate, PodField, Template};

/// The annotation that releases removals which the removal limit holds. Its value is `status.heldRemovals.id`.
pub const RELEASE_REMOVALS_ANNOTATION: &str = "podward.io/release-removals";
/// The finalizer of a binding that may have instances of its own in its registry.
pub const BINDING_FINALIZER: &str = "podward.io/discovery-binding";
/// The finalizer of a binding that may have a hook, for which pods wait.
pub const BINDING_HOOK_FINALIZER: &str = "podward.io/discovery-hook";
/// All finalizers of bindings that are Podward's.
pub const BINDING_FINALIZERS: [&str; 2] = [BINDING_FINALIZER, BINDING_HOOK_FINALIZER];

/// Defines which pods are instances of which service in which registry.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "podward.io",
    version = "v1alpha1",
    kind = "DiscoveryBinding",
    plural = "discoverybindings",
    doc = "Pods that are instances of a service in a registry outside Kubernetes.",
    namespaced,
    shortname = "dbind",
    category = "podward",
    status = "BindingStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Service","type":"string","jsonPath":".spec.service.name"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Wanted","type":"integer","jsonPath":".status.wanted"}"#,
    printcolumn = r#"{"name":"Present","type":"integer","jsonPath":".status.present"}"#,
    printcolumn = r#"{"name":"Reachable","type":"string","jsonPath":".status.conditions[?(@.type==\"Reachable\")].status"}"#,
    printcolumn = r#"{"name":"Synchronized","type":"string","jsonPath":".status.conditions[?(@.type==\"Synchronized\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("metadata.name must be a DNS label: at most 63 lower case letters, digits and '-', no '.'"),
)]
#[x_kube(
    validation = Rule::new("self.mode == oldSelf.mode").message("mode can't be changed; create another DiscoveryBinding"),
)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryBindingSpec {
    /// Selects the pods by their labels. It must not be empty.
    pub selector: LabelSelector,
    /// The registry. If it is changed to another one, the instances of the binding stay in the one before.
    pub registry: BindingRegistry,
    /// The service.
    pub service: ServiceName,
    /// The port: a number, or the name of a port of a container.
    pub port: IntOrString,
    /// A template for the weight of an instance relative to other instances: a number from 0 to 10000.
    #[serde(default = "default_weight")]
    #[schemars(length(min = 1, max = 300))]
    pub weight: String,
    /// What clients of the registry see of an instance. The values are templates. Keys that begin with `podward-` are
    /// reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64))]
    pub metadata: BTreeMap<String, String>,
    /// Who registers the instances. Own: Podward registers and deregisters them. Steer: the application registers itself,
    /// and Podward only takes instances out of service and puts them back. It cannot be changed.
    #[serde(default)]
    pub mode: BindingMode,
    /// What happens to an instance in each phase.
    #[serde(default)]
    pub phases: BindingPhases,
    /// How long clients of the registry may use what they have read after the registry shows a change, in seconds. Podward
    /// waits this time after a removal. When not set, 65 for Eureka (besides the cache of its servers), 45 for Nacos, 35 for
    /// ZooKeeper's layout Curator, 10 for its Dubbo layouts, 5 for Consul, etcd and Http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3600), transform = known_format)]
    pub client_cache_seconds: Option<u32>,
    /// How the registry is compared with the pods.
    #[serde(default)]
    pub drift: BindingDrift,
    /// The largest share of the instances of a service that Podward takes away within a minute without a reason on record:
    /// an operation or the end of a pod. In percent, but at least one instance. Further removals wait until somebody
    /// releases them.
    #[serde(default = "default_removal_limit")]
    #[schemars(range(min = 1, max = 100), transform = known_format)]
    pub removal_limit_percent: u32,
    /// The longest time for one question about a pod, in seconds. `deadlinePolicy` determines what happens then.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 86_400), transform = known_format)]
    pub deadline_seconds: u32,
    /// The effect of a registry that does not show a change in time. Hold: the pod continues to wait. Proceed: it continues
    /// with the evidence TIMED_OUT. Cancel: the operation is cancelled while the pod is being drained.
    #[serde(default)]
    pub deadline_policy: DeadlinePolicy,
}

/// The registry of a binding: exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingRegistry {
    /// The name of a ClusterRegistry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster_registry: Option<String>,
    /// A connection. Its Secrets are in the namespace of the DiscoveryBinding, and a Role there has to allow Podward to get
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<RegistryConnection>,
}

/// The name of a service in the terms of a registry. All fields are templates over fields of the pod: `${pod.name}`,
/// `${pod.namespace}`, `${pod.uid}`, `${pod.ip}`, `${pod.node}`, `${pod.labels['<key>']}`, `${pod.annotations['<key>']}`.
/// `${field:-text}` stands for the text if the field is empty or missing, `$$` for `$`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceName {
    /// The name.
    #[schemars(length(min = 1, max = 300))]
    pub name: String,
    /// The namespace of the registry, for example of Consul Enterprise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 300))]
    pub namespace: String,
    /// The group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 300))]
    pub group: String,
    /// The cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 300))]
    pub cluster: String,
}

/// Who registers instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum BindingMode {
    #[default]
    Own,
    Steer,
}

/// What happens to the instance of a pod in each phase. In the mode Steer, an instance is only taken out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingPhases {
    /// Before an operation after which the pod continues to exist, such as an update in place or a restart.
    #[serde(default = "take_out_of_service")]
    pub before_update: Removal,
    /// Before the pod is deleted, evicted or scaled in.
    #[serde(default = "deregister")]
    pub before_delete: Removal,
}

impl Default for BindingPhases {
    fn default() -> Self {
        Self { before_update: take_out_of_service(), before_delete: deregister() }
    }
}

/// How an instance is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Removal {
    TakeOutOfService,
    Deregister,
}

/// How a registry is compared with the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingDrift {
    /// The interval of full comparisons, in seconds. The registry is also compared after it was unreachable.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 10, max = 3600), transform = known_format)]
    pub interval_seconds: u32,
    /// What happens to changes that others have made to instances of Podward.
    #[serde(default)]
    pub foreign_changes: ForeignChanges,
}

impl Default for BindingDrift {
    fn default() -> Self {
        Self { interval_seconds: default_interval(), foreign_changes: ForeignChanges::default() }
    }
}

/// What happens to changes that others have made to instances of Podward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ForeignChanges {
    #[default]
    Repair,
    Report,
}

fn default_weight() -> String {
    "1".to_owned()
}

fn take_out_of_service() -> Removal {
    Removal::TakeOutOfService
}

fn deregister() -> Removal {
    Removal::Deregister
}

fn default_interval() -> u32 {
    60
}

fn default_removal_limit() -> u32 {
    30
}

fn default_deadline() -> u32 {
    300
}
