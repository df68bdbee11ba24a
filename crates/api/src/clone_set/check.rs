//! Validation of a set, as far as the schema of the resource does not contain it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use podward_core::cloneset::keys::SPECIFIED_DELETE;
use podward_core::hooks::Selector;

use super::CloneSet;
use crate::invalid_field::{InvalidField, invalid};
use crate::selector::compile;
use crate::text::excerpt;

/// The only restart policy of pods whose containers are replaced.
const RESTART_POLICY: &str = "Always";

impl CloneSet {
    /// Checks what schemas cannot express, such as the templates of pods and claims, and what only the schema of
    /// Podward's own definition contains.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), InvalidField> {
        self.check_template(&self.check_selector()?)?;
        self.check_claims()?;
        self.check_weights()?;
        self.check_options()?;
        self.hook_options().map(drop)
    }

    fn check_selector(&self) -> Result<Selector, InvalidField> {
        let selector = &self.spec.selector;
        if is_empty(selector) {
            return invalid("spec.selector", "must not be empty: it would select every pod of the namespace");
        }
        compile(selector).or_else(|error| invalid("spec.selector", error.to_string()))
    }

    fn check_template(&self, selector: &Selector) -> Result<(), InvalidField> {
        let template = self.pod_template()?;
        let labels = template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        if !selector.matches(&labels) {
            let problem = "do not match spec.selector; add the labels that it selects";
            return invalid("spec.template.metadata.labels", problem);
        }
        if labels.contains_key(SPECIFIED_DELETE) {
            let problem = format!(
                "must not have {SPECIFIED_DELETE}: each pod would be deleted as soon as it is created"
            );
            return invalid("spec.template.metadata.labels", problem);
        }
        match &template.spec {
            Some(pod) => check_pod(pod),
            None => invalid("spec.template.spec", "is required"),
        }
    }

    fn check_claims(&self) -> Result<(), InvalidField> {
        let mut names = BTreeSet::new();
        for (index, claim) in self.volume_claims()?.into_iter().enumerate() {
            let field = format!("spec.volumeClaimTemplates[{index}].metadata.name");
            let name = claim.metadata.name.unwrap_or_default();
            if name.is_empty() {
                return invalid(field, "is required: it is the name of the volume in the pods");
            }
            if names.contains(&name) {
                let problem = format!("{:?} is the name of another template", excerpt(&name));
                return invalid(field, problem);
            }
            names.insert(name);
        }
        Ok(())
    }

    fn check_weights(&self) -> Result<(), InvalidField> {
        let strategy = self.spec.update_strategy.priority_strategy.iter();
        for (index, term) in strategy.flat_map(|strategy| &strategy.weight_priority).enumerate() {
            let field =
                || format!("spec.updateStrategy.priorityStrategy.weightPriority[{index}].matchSelector");
            if is_empty(&term.match_selector) {
                return invalid(field(), "must not be empty; set matchLabels or matchExpressions");
            }
            compile(&term.match_selector).or_else(|error| invalid(field(), error.to_string()))?;
        }
        Ok(())
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn check_pod(pod: &PodSpec) -> Result<(), InvalidField> {
    if pod.containers.is_empty() {
        return invalid("spec.template.spec.containers", "must have at least one container");
    }
    if let Some(policy) = pod.restart_policy.as_deref().filter(|policy| *policy != RESTART_POLICY) {
        let problem = format!("{:?} is not supported; it must be {RESTART_POLICY}", excerpt(policy));
        return invalid("spec.template.spec.restartPolicy", problem);
    }
    if pod.active_deadline_seconds.is_some() {
        let problem = "is not supported, because the pods run until they are deleted; remove it";
        return invalid("spec.template.spec.activeDeadlineSeconds", problem);
    }
    Ok(())
}
