//! `LifecycleHook`: a system that Podward asks to drain pods, to add them to traffic, or to check operations.
// `KubeSchema` copies the struct into the body of a function, where `pub` is unreachable.
#![allow(unreachable_pub)]

mod convert;
mod invalid;
mod name;
mod selector_limits;
mod validate;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

pub use invalid::InvalidHook;
pub(crate) use name::is_part_of_domain;
pub use name::{HookName, check_hook_name};
pub use validate::is_label_value;

/// The longest deadline, in seconds: 24 hours.
pub const MAX_DEADLINE_SECONDS: u32 = 86_400;
/// The largest order. The smallest is its negative.
pub const ORDER_LIMIT: i32 = 1000;
/// The upper limit of `max_concurrent_calls`.
pub const MAX_CONCURRENT_CALLS: u32 = 1000;
/// The valid timeouts of a call, in milliseconds.
pub const CALL_TIMEOUT_MILLISECONDS: std::ops::RangeInclusive<u32> = 100..=60_000;

/// Defines the pods that Podward asks the hook about, the questions, and the connection.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "podward.io",
    version = "v1alpha1",
    kind = "LifecycleHook",
    plural = "lifecyclehooks",
    doc = "A system that Podward calls during operations on pods: to drain a pod, to add it to traffic, or to check an \
           operation.",
    shortname = "lh",
    category = "podward",
    status = "HookStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Reachable","type":"string","jsonPath":".status.conditions[?(@.type==\"Reachable\")].status"}"#,
    printcolumn = r#"{"name":"In flight","type":"integer","jsonPath":".status.callsInFlight"}"#,
    printcolumn = r#"{"name":"Policy","type":"string","jsonPath":".spec.deadlinePolicy"}"#,
    printcolumn = r#"{"name":"Owner","type":"string","priority":1,"jsonPath":".metadata.annotations.podward\\.io/owner"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = Rule::new("has(self.spec.__namespace__) || \
                            self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("metadata.name must be a DNS label: at most 63 lower case letters, digits and '-', no '.'"),
    validation = Rule::new("!has(self.spec.__namespace__) || \
                            self.metadata.name.startsWith(self.spec.__namespace__ + '.') && \
                            self.metadata.name.split('.').size() == 2 && self.metadata.name.split('.')[1].size() <= 63")
        .message("metadata.name must be <spec.namespace>.<name>, where <name> is a DNS label"),
)]
#[x_kube(
    validation = Rule::new("has(self.endpoint) != has(self.attachment)")
        .message("exactly one of endpoint and attachment must be set"),
    validation = Rule::new("has(self.__namespace__) == has(oldSelf.__namespace__) && \
                            (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)")
        .message("namespace can't be changed; create another hook"),
    validation = Rule::new("!has(self.__namespace__) || !has(self.namespaceSelector)")
        .message("must not be set together with namespace")
        .field_path(".namespaceSelector"),
    validation = Rule::new("self.phases.all(p, p != 'Release') || self.phases.exists(p, p in ['Prepare', 'Complete'])")
        .message("phases: Release is only for consumers of pods; add Prepare or Complete"),
    validation = Rule::new("!has(self.postCheckRejection) || self.postCheckRejection != 'Rollback' || \
                            self.phases.exists(p, p == 'PostCheck')")
        .message("Rollback requires the phase PostCheck; add it to phases")
        .field_path(".postCheckRejection"),
    validation = Rule::new("!has(self.postCheckRejection) || self.postCheckRejection != 'Rollback' || \
                            !has(self.failurePolicy) || self.failurePolicy != 'Ignore'")
        .message("must be Fail with postCheckRejection Rollback: with Ignore, a refused result would be accepted while \
                  the hook is unreachable")
        .field_path(".failurePolicy")
)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHookSpec {
    /// Selects pods by their labels, among the pods that have opted in. When not set, all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = selector_limits::bounded)]
    pub pod_selector: Option<LabelSelector>,
    /// The only namespace whose pods the hook can select. The hook is then called `<namespace>.<name>`. It cannot be
    /// changed. When not set, `namespaceSelector` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Selects namespaces by their labels. When not set, all namespaces. Not valid together with `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = selector_limits::bounded)]
    pub namespace_selector: Option<LabelSelector>,
    /// The questions that Podward asks the hook. PreCheck: may the operation start? Prepare: drain the pod.
    /// PostCheck: is the result good? Complete: add the pod to traffic. Release: forget the pod.
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[schemars(length(min = 1, max = 5))]
    pub phases: Vec<Phase>,
    /// The types of operation for which Podward asks PreCheck and PostCheck. When empty, all types. The other phases
    /// do not depend on the type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub operation_types: Vec<String>,
    /// The server that Podward connects to. Exactly one of `endpoint` and `attachment` must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The hook connects to Podward and calls gRPC `HookRegistry.Attach`. Exactly one of `endpoint` and `attachment`
    /// must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// The longest time from the first call for a question to the answer DONE, in seconds. At most 86400 (24 hours).
    /// `deadlinePolicy` determines what happens at the deadline.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 1, max = 86_400), transform = known_format)]
    pub deadline_seconds: u32,
    /// The effect of a deadline that passes before the hook answers DONE. Hold: the pod continues to wait. Proceed:
    /// the pod continues without the hook, with the evidence TIMED_OUT. Cancel: Podward cancels the operation in
    /// PreCheck and Prepare, and otherwise acts as with Hold.
    #[serde(default)]
    pub deadline_policy: DeadlinePolicy,
    /// The effect of a hook that is unreachable. Fail: the pod waits until the hook answers or the deadline passes.
    /// Ignore: after three failed calls in a row, the pod continues without the hook, with the evidence ASSUMED. That a
    /// hook is not attached does not count in the first 30 s after it was registered or changed, or after a change of
    /// leader.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// The effect of the answer REJECTED in PostCheck. Hold: the operation waits until the hook answers DONE or the
    /// deadline passes. Rollback: the label `rollback.podward.io/<id>` of the pod tells the operator that the result
    /// is refused, and no deadline ends the wait. Rollback requires the phase PostCheck and the failure policy Fail.
    #[serde(default)]
    pub post_check_rejection: PostCheckRejection,
    /// The order of the hooks of a pod. Podward asks hooks with a lower order first, and asks those with a higher
    /// order after the lower ones have answered DONE. In Complete the order is reversed. Hooks of equal order are
    /// asked at the same time, and so are new hooks of a pod that is in service.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,
    /// The timing of Prepare. BeforeGate: Podward asks while the readiness gate is True, and sets it to False after
    /// DONE. AfterGate: Podward asks after the gate has become False.
    #[serde(default = "after_gate")]
    pub prepare_timing: GateTiming,
    /// The timing of Complete. BeforeGate: Podward asks when the containers are ready, and sets the readiness gate to
    /// True after DONE. AfterGate: Podward asks when the pod is Ready.
    #[serde(default = "before_gate")]
    pub complete_timing: GateTiming,
    /// The largest number of calls to the hook at the same time.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 1000), transform = known_format)]
    pub max_concurrent_calls: u32,
    /// The timeout of one call, in milliseconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 100, max = 60_000), transform = known_format)]
    pub call_timeout_milliseconds: u32,
}

/// A question to a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Phase {
    PreCheck,
    Prepare,
    PostCheck,
    Complete,
    Release,
}

/// A hook server that Podward connects to by gRPC over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// `https://<host>:<port>`, without a path.
    #[schemars(
        length(max = 300),
        regex(pattern = r"^https://([^/?#@:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$")
    )]
    pub url: String,
    /// PEM certificates of the authorities that may issue the server's certificate. It can also be the server's
    /// certificate itself, if that is self-signed. When not set, the authorities of the system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 262_144), regex(pattern = "^$|-----BEGIN CERTIFICATE-----"))]
    pub ca_certificates: String,
    /// The name that the server's certificate must be valid for. When not set, the host of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// A hook that connects to Podward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {}

/// The effect of a deadline that passes before a hook answers DONE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum DeadlinePolicy {
    #[default]
    Hold,
    Proceed,
    Cancel,
}

/// The effect of a hook that is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// The effect of a hook that refuses the result of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum PostCheckRejection {
    #[default]
    Hold,
    Rollback,
}

/// The order between a question and the change of the readiness gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum GateTiming {
    #[default]
    BeforeGate,
    AfterGate,
}

/// The observed state of a hook. The leader of the lifecycle-controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The `metadata.generation` of the hook that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted` is True if the hook is valid, so that Podward asks it. `Reachable` is True if the hook answers
    /// calls or is attached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The time of the last answer. Not set when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer_time: Option<Time>,
    /// The number of calls that the hook has not answered yet.
    #[serde(default)]
    #[schemars(transform = known_format)]
    pub calls_in_flight: u32,
    /// The median duration of the latest calls, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub latency_p50_milliseconds: Option<u32>,
    /// The 99th percentile of the duration of the latest calls, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = known_format)]
    pub latency_p99_milliseconds: Option<u32>,
    /// The last error since the hook was last reached. Not set when there was none.
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
