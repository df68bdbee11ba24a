//! The objects that a set creates, as types. Unknown fields are only in the JSON.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use serde::Deserialize;

use super::CloneSet;
use crate::invalid_field::{InvalidField, invalid};

impl CloneSet {
    /// Returns the template of the pods.
    ///
    /// # Errors
    /// Fails if `spec.template` is not a PodTemplateSpec.
    pub fn pod_template(&self) -> Result<PodTemplateSpec, InvalidField> {
        PodTemplateSpec::deserialize(&self.spec.template)
            .or_else(|error| invalid("spec.template", format!("is not the template of a pod: {error}")))
    }

    /// Returns the templates of the PersistentVolumeClaims of each pod.
    ///
    /// # Errors
    /// Fails if an element of `spec.volumeClaimTemplates` is not a PersistentVolumeClaim.
    pub fn volume_claims(&self) -> Result<Vec<PersistentVolumeClaim>, InvalidField> {
        let templates = self.spec.volume_claim_templates.iter().enumerate();
        templates
            .map(|(index, template)| {
                PersistentVolumeClaim::deserialize(template).or_else(|error| {
                    let problem = format!("is not a PersistentVolumeClaim: {error}");
                    invalid(format!("spec.volumeClaimTemplates[{index}]"), problem)
                })
            })
            .collect()
    }
}
