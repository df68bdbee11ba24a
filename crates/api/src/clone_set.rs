//! `CloneSet`: pods that are updated in place, with lifecycle hooks.
//!
//! The resource is defined by OpenKruise (`apps.kruise.io/v1alpha1`), and the JSON is compatible with its version 1.9:
//! missing fields and `null` stand for the defaults. `v1beta1` is not served.
// `KubeSchema` copies the struct into the body of a function, where `pub` is unreachable.
#![allow(unreachable_pub)]

mod check;
mod check_options;
mod hook_options;
mod json;
mod lifecycle;
mod priority;
mod scale;
mod schema;
mod status;
mod template;
mod update;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use json::null_as_default;
use json::{any_list, is_default, null_as_number};
use schema::{any_objects, bounded_selector, pod_template};

pub use hook_options::{HookDeadlinePolicy, HookOption, HookOptions};
pub use lifecycle::{CloneSetHook, CloneSetLifecycle};
pub use priority::{OrderPriority, PriorityStrategy, ScatterTerm, WeightPriority};
pub use scale::ScaleStrategy;
pub use status::{CloneSetCondition, CloneSetStatus};
pub use update::{InPlaceUpdateStrategy, UpdateStrategy, UpdateType};

/// The value of `progressDeadlineSeconds` that stands for no deadline.
pub const NO_PROGRESS_DEADLINE: i32 = i32::MAX;

const REPLICAS: i32 = 1;
const REVISIONS: i32 = 10;

/// Defines the pods of the set, and how they are scaled and updated.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "CloneSet",
    plural = "clonesets",
    doc = "Pods without an order that are updated in place where possible, with hooks before they are updated and \
           deleted, and before they are in use.",
    namespaced,
    shortname = "clone",
    status = "CloneSetStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn = r#"{"name":"DESIRED","type":"integer","jsonPath":".spec.replicas","description":"The number of pods that there should be."}"#,
    printcolumn = r#"{"name":"UPDATED","type":"integer","jsonPath":".status.updatedReplicas","description":"The pods of the latest revision."}"#,
    printcolumn = r#"{"name":"UPDATED_READY","type":"integer","jsonPath":".status.updatedReadyReplicas","description":"The ready pods of the latest revision."}"#,
    printcolumn = r#"{"name":"UPDATED_AVAILABLE","type":"integer","jsonPath":".status.updatedAvailableReplicas","description":"The available pods of the latest revision."}"#,
    printcolumn = r#"{"name":"READY","type":"integer","jsonPath":".status.readyReplicas","description":"The ready pods."}"#,
    printcolumn = r#"{"name":"TOTAL","type":"integer","jsonPath":".status.replicas","description":"The pods that exist."}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"CONTAINERS","type":"string","priority":1,"jsonPath":".spec.template.spec.containers[*].name","description":"The containers of the pods."}"#,
    printcolumn = r#"{"name":"IMAGES","type":"string","priority":1,"jsonPath":".spec.template.spec.containers[*].image","description":"The images of the pods."}"#,
    printcolumn = r#"{"name":"SELECTOR","type":"string","priority":1,"jsonPath":".status.labelSelector","description":"The selector of the pods."}"#
)]
#[x_kube(
    validation = Rule::new("self.replicas == 0 || !has(self.updateStrategy.maxUnavailable) || \
                            self.updateStrategy.maxUnavailable != 0 && self.updateStrategy.maxUnavailable != '0%' || \
                            has(self.updateStrategy.maxSurge) && \
                            self.updateStrategy.maxSurge != 0 && self.updateStrategy.maxSurge != '0%'")
        .message("maxUnavailable and maxSurge must not both be 0, because no pod could be updated; set one of them to \
                  1 or more")
        .field_path(".updateStrategy.maxUnavailable"),
    validation = Rule::new("!has(self.progressDeadlineSeconds) || self.progressDeadlineSeconds == 2147483647 || \
                            self.progressDeadlineSeconds > (has(self.minReadySeconds) ? self.minReadySeconds : 0)")
        .message("must be greater than minReadySeconds, because no pod could become available before the deadline; \
                  2147483647 stands for no deadline")
        .field_path(".progressDeadlineSeconds"),
    // Not for sets that are stored so: they must be deletable, and report the problem in their status.
    validation = Rule::new("!has(self.selector.matchLabels) || has(self.template.metadata) && \
                            has(self.template.metadata.labels) && \
                            self.selector.matchLabels.all(key, key in self.template.metadata.labels && \
                            self.template.metadata.labels[key] == self.selector.matchLabels[key]) || \
                            oldSelf.hasValue() && !(has(oldSelf.value().template.metadata) && \
                            has(oldSelf.value().template.metadata.labels) && \
                            self.selector.matchLabels.all(key, key in oldSelf.value().template.metadata.labels && \
                            oldSelf.value().template.metadata.labels[key] == self.selector.matchLabels[key]))")
        .message("the template must have the labels in spec.selector.matchLabels")
        .field_path(".template.metadata.labels")
        .optional_old_self(true)
)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetSpec {
    /// The number of pods.
    #[serde(default = "replicas", deserialize_with = "null_as_number::<REPLICAS, _>")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Selects the pods of the set. It must match the labels of the template, and it cannot be changed.
    #[schemars(transform = bounded_selector)]
    #[x_kube(
        validation = Rule::new("has(self.matchLabels) && self.matchLabels.size() > 0 || \
                                has(self.matchExpressions) && self.matchExpressions.size() > 0")
            .message("must not be empty; set matchLabels to labels of the template"),
        validation = Rule::new("self == oldSelf").message("can't be changed; create another CloneSet")
    )]
    pub selector: LabelSelector,
    /// The template of the pods: a PodTemplateSpec. `restartPolicy` must be Always.
    #[schemars(transform = pod_template)]
    pub template: Value,
    /// Templates of PersistentVolumeClaims. Each pod gets a claim of each of them as a volume with its name. The claims
    /// are deleted together with the pod if the set deletes it.
    #[serde(default, deserialize_with = "any_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = any_objects)]
    pub volume_claim_templates: Vec<Value>,
    /// How pods are created and deleted.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub scale_strategy: ScaleStrategy,
    /// How pods get a new revision of the template.
    #[serde(default, deserialize_with = "null_as_default")]
    pub update_strategy: UpdateStrategy,
    /// The number of old revisions that are kept.
    #[serde(default = "revisions", deserialize_with = "null_as_number::<REVISIONS, _>")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: i32,
    /// How long a pod has to be ready before it is available, in seconds. When not set, 0.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: i32,
    /// How long an update may make no progress before the condition Progressing is False, in seconds. When not set, and
    /// with 2147483647, there is no such condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
    /// The hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<CloneSetLifecycle>,
}

/// Returns the definition of CloneSets. It has the name of OpenKruise's definition and takes its place, so it is not
/// among [`crds`](crate::crds).
#[must_use]
pub fn clone_set_crd() -> CustomResourceDefinition {
    CloneSet::crd()
}

fn replicas() -> i32 {
    REPLICAS
}

fn revisions() -> i32 {
    REVISIONS
}
