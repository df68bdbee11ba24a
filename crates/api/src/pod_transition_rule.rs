//! `PodTransitionRule`: checks before and after operations on pods.
//!
//! The resource is defined by KusionStack (kube-api, `apps/v1alpha1/podtransitionrule_types.go`), and the JSON is
//! compatible with it. Podward adds optional fields to the status only.
// `KubeSchema` copies the struct into the body of a function, where `pub` is unreachable.
#![allow(unreachable_pub)]

mod ca_bundle;
mod check;
mod convert;
mod parameters;
mod status;
mod url;
mod validate;
mod webhook;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

pub use ca_bundle::ca_certificates;
pub use check::{RuleCheckSpec, RuleStage};
pub use parameters::FieldPath;
pub use status::{PodTransitionRuleStatus, RuleState, TaskInfo, WebhookStatus};
pub use url::WebhookUrl;
pub use validate::{RuleFinding, RuleFindings};
pub use webhook::{
    ClientConfig, Parameter, ParameterSource, Poll, TransitionRuleWebhook, WebhookFailurePolicy,
};

/// The largest number of rules in an object. A CEL rule compares their names pairwise, and its cost is limited.
pub const MAX_RULES: usize = 64;
/// The largest length of a rule's name and of its stage, in bytes.
pub const MAX_NAME: usize = 253;

/// Defines rules for the pods in the namespace of the object that match the selector.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "apps.kusionstack.io",
    version = "v1alpha1",
    kind = "PodTransitionRule",
    plural = "podtransitionrules",
    doc = "Rules that a pod must pass before an operation on it may begin (PreCheck), and before it returns to service \
           (PostCheck).",
    namespaced,
    shortname = "ptr",
    status = "PodTransitionRuleStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.targetCount"}"#,
    printcolumn = r#"{"name":"Waiting","type":"integer","jsonPath":".status.waitingCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new("has(self.selector)")
        .message("selector is required; {} selects all pods of the namespace"),
    validation = Rule::new("!has(self.rules) || \
                            self.rules.all(a, \
                            self.rules.exists_one(b, has(a.name) && has(b.name) && a.name == b.name))")
        .message("rules: each rule must have a unique name")
)]
#[serde(rename_all = "camelCase")]
pub struct PodTransitionRuleSpec {
    /// Selects pods by their labels. Required. An empty selector selects all pods of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The rules that a selected pod must pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub rules: Vec<TransitionRule>,
}

/// A rule. Exactly one of `availablePolicy`, `labelCheck` and `webhook` must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("[has(self.availablePolicy), has(self.labelCheck), has(self.webhook)]\
                            .filter(is_set, is_set).size() == 1")
        .message("exactly one of availablePolicy, labelCheck and webhook must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRule {
    /// The name of the rule. It must be unique within the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// True to disable the rule.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// The stage of the check: `PreCheck` or `PostCheck`. `PreCheck` when not set. With any other value, the rule is
    /// never checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub stage: Option<String>,
    /// Conditions for the check. Podward supports no conditions: if there are any, the rule is never checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Restricts the rule to a part of the selected pods. When not set, it applies to all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<TransitionRuleFilter>,
    /// Limits how many of the selected pods may be unavailable at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_policy: Option<AvailablePolicy>,
    /// Requires labels of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_check: Option<LabelCheck>,
    /// Asks a system over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<TransitionRuleWebhook>,
}

/// Restricts a rule to a part of the selected pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRuleFilter {
    /// Selects pods by their labels. When not set, all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Requires labels of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelCheck {
    /// The selector that the labels of the pod must match.
    pub requires: LabelSelector,
}

/// Limits how many of the selected pods may be unavailable. If several fields are set, all limits apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("has(self.maxUnavailableValue) || has(self.minAvailableValue) || \
                            has(self.maxUnavailablePolicy) || has(self.minAvailablePolicy)")
        .message("at least one of maxUnavailableValue, minAvailableValue, maxUnavailablePolicy and minAvailablePolicy \
                  must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct AvailablePolicy {
    /// The largest number of unavailable pods: a number, or a percentage of the selected pods, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = number_or_percentage)]
    pub max_unavailable_value: Option<IntOrString>,
    /// The largest number of unavailable pods, as a function of the number of selected pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable_policy: Option<AdaptivePolicy>,
    /// The smallest number of available pods: a number, or a percentage of the selected pods, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = number_or_percentage)]
    pub min_available_value: Option<IntOrString>,
    /// The smallest number of available pods, as a function of the number of selected pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available_policy: Option<AdaptivePolicy>,
}

/// A number of pods as a function of the number of selected pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdaptivePolicy {
    /// The function. When not set, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp_func: Option<ExpFunc>,
}

/// The function `coeff * pods ^ pow`, where `pods` is the number of selected pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExpFunc {
    /// The factor: a number as text. 1 when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub coeff: Option<String>,
    /// The exponent: a number as text. 1 when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pow: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Limits the number, and the text to percentages. The limits keep the estimated cost of the CEL rules low.
fn number_or_percentage(schema: &mut Schema) {
    schema.insert("minimum".to_owned(), 0.into());
    schema.insert("maximum".to_owned(), i32::MAX.into());
    schema.insert("pattern".to_owned(), r"^(100|[0-9]{1,2})%$".into());
}
