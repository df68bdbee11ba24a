//! The custom resources of Podward: its own, `podward.io/v1alpha1`, and `PodTransitionRule` of KusionStack,
//! `apps.kusionstack.io/v1alpha1`. Their schemas are derived from these types: `cargo xtask crds` writes `deploy/crds`.
#![forbid(unsafe_code)]

mod lifecycle_hook;
pub mod pod_transition_rule;
mod schema;
mod selector;
mod words;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use lifecycle_hook::{
    Attachment, CALL_TIMEOUT_MILLISECONDS, DeadlinePolicy, Endpoint, FailurePolicy, GateTiming, HookStatus,
    InvalidHook, LifecycleHook, LifecycleHookSpec, MAX_CONCURRENT_CALLS, MAX_DEADLINE_SECONDS, ORDER_LIMIT,
    Phase, PostCheckRejection, is_label_value,
};
pub use pod_transition_rule::PodTransitionRule;
pub use selector::compile as compile_selector;

/// The definitions of all custom resources, as the API server takes them.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![LifecycleHook::crd(), PodTransitionRule::crd()]
}
