//! `PodTransitionRule`: who may start an operation now, and whether its result is good. KusionStack's resource, with the same JSON
//! (kube-api, `apps/v1alpha1/podtransitionrule_types.go`); what Podward adds is optional, and in the status alone.
// `KubeSchema` copies the struct into the body of a function.
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
pub use check::{Check, RuleStage};
pub use parameters::FieldPath;
pub use status::{PodTransitionRuleStatus, RuleState, TaskInfo, WebhookStatus};
pub use url::WebhookUrl;
pub use validate::{Finding, Findings};
pub use webhook::{ClientConfig, FailurePolicy, Parameter, ParameterSource, Poll, TransitionRuleWebhook};

/// The most rules in one object. Their names are compared with each other by CEL, whose cost is bounded.
pub const MAX_RULES: usize = 64;
/// The most characters of a rule's name, and of its stage.
pub const MAX_NAME: usize = 253;

/// Rules for the pods that the selector matches, in the object's namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "apps.kusionstack.io",
    version = "v1alpha1",
    kind = "PodTransitionRule",
    plural = "podtransitionrules",
    doc = "Rules that pods have to pass before an operation on them may begin (PreCheck), and after it (PostCheck).",
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
        .message("selector is required; {} selects every pod of the namespace"),
    validation = Rule::new("!has(self.rules) || self.rules.all(a, self.rules.exists_one(b, has(a.name) && has(b.name) && a.name == b.name))")
        .message("rules: each needs a name, and no two the same")
)]
#[serde(rename_all = "camelCase")]
pub struct PodTransitionRuleSpec {
    /// The pods that the rules are for, by their labels. An empty one matches every pod of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What they have to pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub rules: Vec<TransitionRule>,
}

/// One rule. Exactly one of `availablePolicy`, `labelCheck` and `webhook` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("[has(self.availablePolicy), has(self.labelCheck), has(self.webhook)].filter(is_set, is_set).size() == 1")
        .message("exactly one of availablePolicy, labelCheck and webhook must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRule {
    /// Its name, which no other rule of the object has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it is left out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// When it is asked: `PreCheck` or `PostCheck`. When not set, PreCheck. In any other stage there is never a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub stage: Option<String>,
    /// Conditions under which it is asked. None is known: with any, the rule is never asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Which of the pods it is asked about. When not set, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<TransitionRuleFilter>,
    /// How many pods may be unavailable at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_policy: Option<AvailablePolicy>,
    /// Labels that a pod must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_check: Option<LabelCheck>,
    /// A system that is asked over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<TransitionRuleWebhook>,
}

/// Which pods a rule is asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionRuleFilter {
    /// Pods by their labels. When not set, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Labels that a pod must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelCheck {
    /// What the pod's labels must match.
    pub requires: LabelSelector,
}

/// How many of the selected pods may be unavailable. Where several are set, all are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("has(self.maxUnavailableValue) || has(self.minAvailableValue) || has(self.maxUnavailablePolicy) || has(self.minAvailablePolicy)")
        .message("at least one of maxUnavailableValue, minAvailableValue, maxUnavailablePolicy and minAvailablePolicy must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct AvailablePolicy {
    /// The most pods that may be unavailable: a number, or a percentage of the selected pods, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = number_or_percentage)]
    pub max_unavailable_value: Option<IntOrString>,
    /// The same as a function of the number of selected pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable_policy: Option<AdaptivePolicy>,
    /// The fewest pods that must stay available: a number, or a percentage of the selected pods, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = number_or_percentage)]
    pub min_available_value: Option<IntOrString>,
    /// The same as a function of the number of selected pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available_policy: Option<AdaptivePolicy>,
}

/// A number of pods as a function of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdaptivePolicy {
    /// The function. When not set, the policy says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp_func: Option<ExpFunc>,
}

/// `coeff * pods ^ pow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExpFunc {
    /// A number, as text; 1 when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub coeff: Option<String>,
    /// A number, as text; 1 when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pow: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Bounds the number, and gives the text its form. CEL would have to reckon with texts of any length.
fn number_or_percentage(schema: &mut Schema) {
    schema.insert("minimum".to_owned(), 0.into());
    schema.insert("maximum".to_owned(), i32::MAX.into());
    schema.insert("pattern".to_owned(), r"^(100|[0-9]{1,2})%$".into());
}
