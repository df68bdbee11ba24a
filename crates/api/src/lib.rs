//! The custom resources of Podward: `LifecycleHook`, `DiscoveryBinding` and `ClusterRegistry` (`podward.io/v1alpha1`),
//! KusionStack's `PodTransitionRule` (`apps.kusionstack.io/v1alpha1`) and OpenKruise's `CloneSet`
//! (`apps.kruise.io/v1alpha1`).
//!
//! The types define the schemas, and their doc comments the descriptions. `cargo xtask crds` writes both to
//! `deploy/crds`.
#![forbid(unsafe_code)]

pub mod clone_set;
mod cluster_registry;
pub mod discovery_binding;
pub mod downgrade;
mod invalid_field;
mod lifecycle_hook;
pub mod pod_transition_rule;
pub mod quantity;
pub mod registry_connection;
mod schema;
mod selector;
mod text;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use clone_set::{CloneSet, CloneSetSpec, clone_set_crd};
pub use cluster_registry::{ClusterRegistry, ClusterRegistrySpec};
pub use discovery_binding::{DiscoveryBinding, DiscoveryBindingSpec};
pub use invalid_field::InvalidField;
pub use lifecycle_hook::{
    Attachment, CALL_TIMEOUT_MILLISECONDS, DeadlinePolicy, Endpoint, FailurePolicy, GateTiming, HookName,
    HookStatus, InvalidHook, LifecycleHook, LifecycleHookSpec, MAX_CONCURRENT_CALLS, MAX_DEADLINE_SECONDS,
    ORDER_LIMIT, Phase, PostCheckRejection, check_hook_name, is_label_value,
};
pub use pod_transition_rule::PodTransitionRule;
pub use schema::{element_schema, value_schema};
pub use selector::compile as compile_selector;
pub use text::shortened;

/// Returns the definitions of the custom resources that every installation has. [`clone_set_crd`] is not one of them.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![LifecycleHook::crd(), PodTransitionRule::crd(), DiscoveryBinding::crd(), ClusterRegistry::crd()]
}
