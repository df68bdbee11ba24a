//! `LifecycleHook`: a party that takes part in the life of pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use podward_core::hooks::{self, InvalidSelector, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A system that sends pods traffic or depends on them, and is asked before anything happens to one.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "podward.io",
    version = "v1alpha1",
    kind = "LifecycleHook",
    plural = "lifecyclehooks",
    shortname = "lh",
    category = "podward",
    status = "HookStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Reachable","type":"string","jsonPath":".status.conditions[?(@.type==\"Reachable\")].status"}"#,
    printcolumn = r#"{"name":"In flight","type":"integer","jsonPath":".status.callsInFlight"}"#,
    printcolumn = r#"{"name":"Policy","type":"string","jsonPath":".spec.deadlinePolicy"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHookSpec {
    /// Pods by their labels; only pods that have opted in count. When not set, all of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by their labels. When not set, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// What it is asked.
    pub phases: Vec<Phase>,
    /// Types of operation that concern it in the phases PreCheck and PostCheck. When empty, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_types: Vec<String>,
    /// The server that Podward connects to. Exactly one of `endpoint` and `attachment` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The hook system connects to Podward (gRPC HookRegistry.Attach).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// How long a question may stay without DONE, in seconds.
    #[serde(default = "default_deadline")]
    pub deadline_seconds: u32,
    /// What happens then.
    #[serde(default)]
    pub deadline_policy: DeadlinePolicy,
    /// What happens when the hook can't be reached.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Hooks with a lower order are asked first; COMPLETE goes the other way.
    #[serde(default)]
    pub order: i32,
    /// When PREPARE is asked, as against the readiness gate.
    #[serde(default = "after_gate")]
    pub prepare_timing: GateTiming,
    /// When COMPLETE is asked, as against the readiness gate.
    #[serde(default = "before_gate")]
    pub complete_timing: GateTiming,
    /// Questions that may be open at the hook at the same time.
    #[serde(default = "default_concurrency")]
    pub max_concurrent_calls: u32,
    /// How long one call may take, in milliseconds.
    #[serde(default = "default_timeout")]
    pub call_timeout_milliseconds: u32,
}

/// What a hook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Phase {
    PreCheck,
    Prepare,
    PostCheck,
    Complete,
    Release,
}

/// A hook server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// `https://<host>:<port>`.
    pub url: String,
    /// PEM certificates of the authorities that its certificate is checked against.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_certificates: String,
    /// The name that its certificate is checked for; the host of the URL when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

/// The hook system connects to Podward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {}

/// What happens when a deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum DeadlinePolicy {
    #[default]
    Hold,
    Proceed,
    Cancel,
}

/// What an unreachable hook means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// When a question is asked, as against the readiness gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum GateTiming {
    #[default]
    BeforeGate,
    AfterGate,
}

/// What is known of a hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The generation that this status is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether the hook is asked at all. `Reachable`: whether it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When it last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer_time: Option<Time>,
    /// Questions that are open at it.
    #[serde(default)]
    pub calls_in_flight: u32,
    /// Half of its latest calls took less, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p50_milliseconds: Option<u32>,
    /// All but one in a hundred of its latest calls took less, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p99_milliseconds: Option<u32>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Why a hook can't be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidHook {
    /// A selector.
    #[error("{field}: {error}")]
    Selector {
        /// Its field.
        field: &'static str,
        /// What is wrong.
        error: InvalidSelector,
    },
    /// Anything else.
    #[error("{field}: {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
}

impl LifecycleHook {
    /// The hook as the engine knows it.
    ///
    /// # Errors
    /// When it can't be right.
    pub fn to_hook(&self) -> Result<hooks::Hook, InvalidHook> {
        let spec = &self.spec;
        let selector = |field, selector: &Option<LabelSelector>| {
            compile(selector.as_ref()).map_err(|error| InvalidHook::Selector { field, error })
        };
        Ok(hooks::Hook {
            name: self.metadata.name.clone().unwrap_or_default(),
            pod_selector: selector("spec.podSelector", &spec.pod_selector)?,
            namespace_selector: selector("spec.namespaceSelector", &spec.namespace_selector)?,
            phases: spec.phases.iter().map(|phase| (*phase).into()).collect(),
            operation_types: spec.operation_types.clone(),
            order: spec.order,
            deadline_nanoseconds: i64::from(spec.deadline_seconds) * 1_000_000_000,
            deadline_policy: spec.deadline_policy.into(),
            failure_policy: spec.failure_policy.into(),
            prepare_timing: spec.prepare_timing.into(),
            complete_timing: spec.complete_timing.into(),
        })
    }
}

fn compile(selector: Option<&LabelSelector>) -> Result<Selector, InvalidSelector> {
    let Some(selector) = selector else { return Ok(Selector::everything()) };
    let equal = selector.match_labels.clone().unwrap_or_default();
    let requirements = selector.match_expressions.iter().flatten().map(|requirement| {
        (
            requirement.key.clone(),
            requirement.operator.clone(),
            requirement.values.clone().unwrap_or_default(),
        )
    });
    Selector::new(equal, requirements)
}

impl From<Phase> for hooks::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::PreCheck => hooks::Phase::PreCheck,
            Phase::Prepare => hooks::Phase::Prepare,
            Phase::PostCheck => hooks::Phase::PostCheck,
            Phase::Complete => hooks::Phase::Complete,
            Phase::Release => hooks::Phase::Release,
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

impl From<GateTiming> for hooks::GateTiming {
    fn from(timing: GateTiming) -> Self {
        match timing {
            GateTiming::BeforeGate => hooks::GateTiming::BeforeGate,
            GateTiming::AfterGate => hooks::GateTiming::AfterGate,
        }
    }
}

fn default_deadline() -> u32 {
    300
}

fn default_concurrency() -> u32 {
    64
}

fn default_timeout() -> u32 {
    10_000
}

fn before_gate() -> GateTiming {
    GateTiming::BeforeGate
}

fn after_gate() -> GateTiming {
    GateTiming::AfterGate
}
