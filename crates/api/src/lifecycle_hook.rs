//! `LifecycleHook`: a party that takes part in the life of pods.
// `KubeSchema` copies the struct into the body of a function.
#![allow(unreachable_pub)]

mod convert;
mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

pub use validate::{InvalidHook, is_label_value};

/// The longest deadline, in seconds: a day.
pub const MAX_DEADLINE_SECONDS: u32 = 86_400;
/// The ends of the range of orders.
pub const ORDER_LIMIT: i32 = 1000;
/// The most questions at a time.
pub const MAX_CONCURRENT_CALLS: u32 = 1000;
/// The bounds of the time for one call, in milliseconds.
pub const CALL_TIMEOUT_MILLISECONDS: std::ops::RangeInclusive<u32> = 100..=60_000;

/// A system that sends pods traffic or depends on them, and is asked before anything happens to one.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "podward.io",
    version = "v1alpha1",
    kind = "LifecycleHook",
    plural = "lifecyclehooks",
    doc = "A party that takes part in the life of pods: it is asked before anything happens to one that it concerns.",
    shortname = "lh",
    category = "podward",
    status = "HookStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Reachable","type":"string","jsonPath":".status.conditions[?(@.type==\"Reachable\")].status"}"#,
    printcolumn = r#"{"name":"In flight","type":"integer","jsonPath":".status.callsInFlight"}"#,
    printcolumn = r#"{"name":"Policy","type":"string","jsonPath":".spec.deadlinePolicy"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("metadata.name must be a DNS label: at most 63 lower case letters, digits and '-', no '.'"),
)]
#[x_kube(
    validation = Rule::new("has(self.endpoint) != has(self.attachment)")
        .message("exactly one of endpoint and attachment must be set"),
    validation = Rule::new("self.phases.all(p, p != 'Release') || self.phases.exists(p, p in ['Prepare', 'Complete'])")
        .message("phases: Release is asked only of hooks that hold pods; add Prepare or Complete"),
    validation = Rule::new("!has(self.postCheckRejection) || self.postCheckRejection != 'Rollback' || self.phases.exists(p, p == 'PostCheck')")
        .message("Rollback is about results, and the hook isn't asked about any; add PostCheck to phases")
        .field_path(".postCheckRejection"),
    validation = Rule::new("!has(self.postCheckRejection) || self.postCheckRejection != 'Rollback' || !has(self.failurePolicy) || self.failurePolicy != 'Ignore'")
        .message("with postCheckRejection Rollback it can't be Ignore: a result that the hook has refused would be accepted when the hook is away; say Fail")
        .field_path(".failurePolicy")
)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHookSpec {
    /// Pods by their labels; only pods that have opted in count. When not set, all of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by their labels. When not set, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// What it is asked; each phase once.
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[schemars(length(min = 1, max = 5))]
    pub phases: Vec<Phase>,
    /// Types of operation that concern it in the phases PreCheck and PostCheck. When empty, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub operation_types: Vec<String>,
    /// The server that Podward connects to. Exactly one of `endpoint` and `attachment` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The hook system connects to Podward (gRPC HookRegistry.Attach).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// How long a question may stay without DONE, in seconds; at most a day.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 86_400), transform = known_format)]
    pub deadline_seconds: u32,
    /// What happens then.
    #[serde(default)]
    pub deadline_policy: DeadlinePolicy,
    /// What happens when the hook can't be reached.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// What it means that the hook says no in PostCheck. Rollback: the operator is told by the label `rollback.podward.io/<id>`, and the
    /// deadline doesn't end the refusal.
    #[serde(default)]
    pub post_check_rejection: PostCheckRejection,
    /// Hooks with a lower order are asked first; COMPLETE goes the other way.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,
    /// When PREPARE is asked, as against the readiness gate.
    #[serde(default = "after_gate")]
    pub prepare_timing: GateTiming,
    /// When COMPLETE is asked, as against the readiness gate.
    #[serde(default = "before_gate")]
    pub complete_timing: GateTiming,
    /// Questions that may be open at the hook at the same time.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 1000), transform = known_format)]
    pub max_concurrent_calls: u32,
    /// How long one call may take, in milliseconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 100, max = 60_000), transform = known_format)]
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
    /// `https://<host>:<port>`, without a path.
    #[schemars(
        length(max = 300),
        regex(pattern = r"^https://([^/?#@:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$")
    )]
    pub url: String,
    /// PEM certificates of the authorities that its certificate is checked against; the system's when not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144), regex(pattern = "^$|-----BEGIN CERTIFICATE-----"))]
    pub ca_certificates: String,
    /// The name that its certificate is checked for; the host of the URL when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
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

/// What it means that a hook says no to a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum PostCheckRejection {
    #[default]
    Hold,
    Rollback,
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
    #[schemars(transform = known_format)]
    pub calls_in_flight: u32,
    /// Half of its latest calls took less, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub latency_p50_milliseconds: Option<u32>,
    /// All but one in a hundred of its latest calls took less, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub latency_p99_milliseconds: Option<u32>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
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
