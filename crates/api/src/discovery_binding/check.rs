//! Validation of a binding.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::invalid_field::{InvalidField, invalid};
use crate::lifecycle_hook::check_hook_name;
use crate::selector;
use crate::text::excerpt;

use super::{BindingRegistry, DiscoveryBinding, Template};

/// What the keys of Podward's mark begin with.
const RESERVED: &str = "podward-";
/// The largest weight.
const MAX_WEIGHT: f64 = 10_000.0;

impl DiscoveryBinding {
    /// Checks the binding, except what only the client of the registry knows.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), InvalidField> {
        let spec = &self.spec;
        check_hook_name(self.metadata.name.as_deref().unwrap_or_default())
            .or_else(|error| invalid("metadata.name", error.to_string()))?;
        let selects = |terms: Option<usize>| terms.is_some_and(|terms| terms > 0);
        if !selects(spec.selector.match_labels.as_ref().map(std::collections::BTreeMap::len))
            && !selects(spec.selector.match_expressions.as_ref().map(Vec::len))
        {
            return invalid("spec.selector", "must not be empty: it would select every pod of the namespace");
        }
        selector::compile(&spec.selector).or_else(|error| invalid("spec.selector", error.to_string()))?;
        match &spec.registry {
            BindingRegistry { cluster_registry: Some(_), connection: None } => {}
            BindingRegistry { cluster_registry: None, connection: Some(connection) } => {
                connection.check("spec.registry.connection")?;
            }
            _ => {
                return invalid("spec.registry", "exactly one of clusterRegistry and connection must be set");
            }
        }
        self.check_templates()?;
        self.check_port()?;
        let limit = spec.removal_limit_percent;
        if !(1..=100).contains(&limit) {
            return invalid("spec.removalLimitPercent", format!("{limit} is not between 1 and 100"));
        }
        if !(10..=3600).contains(&spec.drift.interval_seconds) {
            let problem = format!("{} s is not between 10 s and 3600 s", spec.drift.interval_seconds);
            return invalid("spec.drift.intervalSeconds", problem);
        }
        Ok(())
    }

    fn check_templates(&self) -> Result<(), InvalidField> {
        let service = &self.spec.service;
        let names = [
            ("spec.service.name", &service.name),
            ("spec.service.namespace", &service.namespace),
            ("spec.service.group", &service.group),
            ("spec.service.cluster", &service.cluster),
        ];
        for (field, text) in names {
            Template::parse(text).or_else(|error| invalid(field, error.to_string()))?;
        }
        if service.name.is_empty() {
            return invalid("spec.service.name", "must not be empty");
        }
        let weight =
            Template::parse(&self.spec.weight).or_else(|error| invalid("spec.weight", error.to_string()))?;
        if let Some(text) = weight.literal() {
            parse_weight(text).or_else(|problem| invalid("spec.weight", problem))?;
        }
        for (key, text) in &self.spec.metadata {
            let field = format!("spec.metadata[{}]", excerpt(key));
            if key.is_empty() || key.starts_with(RESERVED) {
                return invalid(field, format!("the key must not be empty or begin with {RESERVED}"));
            }
            Template::parse(text).or_else(|error| invalid(field, error.to_string()))?;
        }
        Ok(())
    }

    fn check_port(&self) -> Result<(), InvalidField> {
        match &self.spec.port {
            IntOrString::Int(number) if (1..=65_535).contains(number) => Ok(()),
            IntOrString::Int(number) => invalid("spec.port", format!("{number} is not between 1 and 65535")),
            IntOrString::String(name) if !name.is_empty() && name.len() <= 63 => Ok(()),
            IntOrString::String(name) => {
                invalid("spec.port", format!("{:?} is not the name of a port", excerpt(name)))
            }
        }
    }
}

/// Returns the weight that a text states. An error is a text for people.
///
/// # Errors
/// Fails if the text is not a number from 0 to 10000.
pub fn parse_weight(text: &str) -> Result<f64, String> {
    let weight: Option<f64> = text.trim().parse().ok();
    weight
        .filter(|weight| (0.0..=MAX_WEIGHT).contains(weight))
        .ok_or_else(|| format!("{:?} is not a number from 0 to {MAX_WEIGHT}", excerpt(text)))
}
