//! Conversion of a `LifecycleHook` to the hook of `podward-core`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use podward_core::hooks::{self, Selector};

use crate::selector::compile;

use super::{
    DeadlinePolicy, FailurePolicy, GateTiming, InvalidHook, LifecycleHook, Phase, PostCheckRejection,
};

/// The label with the name of a namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

impl LifecycleHook {
    /// Checks the hook and returns it as a hook of `podward-core`.
    ///
    /// # Errors
    /// Fails if [`check`](Self::check) fails, or a selector is invalid.
    pub fn to_hook(&self) -> Result<hooks::Hook, InvalidHook> {
        self.check()?;
        let spec = &self.spec;
        let selector = |field, selector: &Option<LabelSelector>| -> Result<Selector, InvalidHook> {
            let Some(selector) = selector else { return Ok(Selector::everything()) };
            compile(selector).map_err(|error| InvalidHook::Selector { field, error })
        };
        // Kubernetes sets this label on each namespace, and nobody can change it.
        let only = spec.namespace.as_ref().map(|namespace| LabelSelector {
            match_labels: Some([(NAMESPACE_NAME.to_owned(), namespace.clone())].into()),
            match_expressions: None,
        });
        let namespaces = if only.is_some() { &only } else { &spec.namespace_selector };
        Ok(hooks::Hook {
            name: self.metadata.name.clone().unwrap_or_default(),
            pod_selector: selector("spec.podSelector", &spec.pod_selector)?,
            namespace_selector: selector("spec.namespaceSelector", namespaces)?,
            phases: spec.phases.iter().map(|phase| (*phase).into()).collect(),
            operation_types: spec.operation_types.clone(),
            order: spec.order,
            deadline_nanoseconds: i64::from(spec.deadline_seconds) * 1_000_000_000,
            deadline_policy: spec.deadline_policy.into(),
            failure_policy: spec.failure_policy.into(),
            post_check_rejection: spec.post_check_rejection.into(),
            prepare_timing: spec.prepare_timing.into(),
            complete_timing: spec.complete_timing.into(),
        })
    }
}

impl From<Phase> for hooks::HookPhase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::PreCheck => hooks::HookPhase::PreCheck,
            Phase::Prepare => hooks::HookPhase::Prepare,
            Phase::PostCheck => hooks::HookPhase::PostCheck,
            Phase::Complete => hooks::HookPhase::Complete,
            Phase::Release => hooks::HookPhase::Release,
        }
    }
}

impl From<DeadlinePolicy> for hooks::DeadlinePolicy {
    fn from(policy: DeadlinePolicy) -> Self {
        match policy {
            DeadlinePolicy::Hold => hooks::DeadlinePolicy::Hold,
            DeadlinePolicy::Proceed => hooks::DeadlinePolicy::Proceed,
            DeadlinePolicy::Cancel => hooks::DeadlinePolicy::Cancel,
        }
    }
}

impl From<FailurePolicy> for hooks::FailurePolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => hooks::FailurePolicy::Fail,
            FailurePolicy::Ignore => hooks::FailurePolicy::Ignore,
        }
    }
}

impl From<PostCheckRejection> for podward_core::PostCheckRejection {
    fn from(policy: PostCheckRejection) -> Self {
        match policy {
            PostCheckRejection::Hold => podward_core::PostCheckRejection::Hold,
            PostCheckRejection::Rollback => podward_core::PostCheckRejection::Rollback,
        }
    }
}

impl From<GateTiming> for hooks::GateTiming {
    fn from(timing: GateTiming) -> Self {
        match timing {
            GateTiming::BeforeGate => hooks::GateTiming::BeforeGate,
            GateTiming::AfterGate => hooks::GateTiming::AfterGate,
        }
    }
}
