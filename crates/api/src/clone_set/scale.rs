//! How pods are created and deleted.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::json::{amount, is_default, null_as_default};
use super::schema::number_or_percentage;

/// How pods are created and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// The names of pods that are to be deleted. Others take their place, unless `replicas` is reduced by as many. The
    /// names of pods that do not exist are removed from the list.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub pods_to_delete: Vec<String>,
    /// The largest number of pods that are not available while pods are added: a number, or a percentage of `replicas`.
    /// When not set, there is no limit.
    #[serde(default, deserialize_with = "amount", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = number_or_percentage)]
    #[x_kube(
        validation = Rule::new("type(self) != string || self.matches('^[0-9]{1,9}%$')")
            .message("must be a number of at least 0, or a percentage such as 20%")
    )]
    pub max_unavailable: Option<IntOrString>,
    /// True if a pod that takes the place of a deleted one does not get its PersistentVolumeClaims.
    #[serde(
        rename = "disablePVCReuse",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "is_default"
    )]
    pub disable_pvc_reuse: bool,
}
