//! The resources of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use podward_api::quantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The resources that can change while a container runs.
pub(super) const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Quantities of resources, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    /// The limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) limits: BTreeMap<String, String>,
    /// The requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) requests: BTreeMap<String, String>,
}

impl Resources {
    /// Returns the value of the field `resources` of a container or a pod. A request that is missing is the limit, as
    /// in a pod.
    ///
    /// # Errors
    /// Fails if it does not consist of quantities.
    pub(super) fn of_json(resources: Option<&Value>) -> Result<Self, String> {
        let limits = quantities(resources.and_then(|it| it.get("limits")))?;
        let mut requests = quantities(resources.and_then(|it| it.get("requests")))?;
        for (name, limit) in &limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
        Ok(Self { limits, requests })
    }

    /// Returns the resources of a container of a pod.
    pub(super) fn of(resources: &ResourceRequirements) -> Self {
        let texts = |map: &Option<BTreeMap<String, Quantity>>| {
            map.iter().flatten().map(|(name, it)| (name.clone(), it.0.clone())).collect()
        };
        Self { limits: texts(&resources.limits), requests: texts(&resources.requests) }
    }

    /// Returns true if there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }

    /// Returns those that `other` does not have with the same quantity.
    #[must_use]
    pub(super) fn without(&self, other: &Self) -> Self {
        let left = |own: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            let differs = |(name, it): &(&String, &String)| {
                !other.get(*name).is_some_and(|other| quantity::is_equal(it, other))
            };
            own.iter().filter(differs).map(|(name, it)| (name.clone(), it.clone())).collect()
        };
        Self { limits: left(&self.limits, &other.limits), requests: left(&self.requests, &other.requests) }
    }

    /// Returns those that can change while a container runs.
    #[must_use]
    pub(super) fn resizable(mut self) -> Self {
        self.limits.retain(|name, _| RESIZABLE.contains(&name.as_str()));
        self.requests.retain(|name, _| RESIZABLE.contains(&name.as_str()));
        self
    }

    /// Adds those of `later`, which replace those with the same name.
    pub(super) fn extend(&mut self, later: Self) {
        self.limits.extend(later.limits);
        self.requests.extend(later.requests);
    }
}

fn quantities(map: Option<&Value>) -> Result<BTreeMap<String, String>, String> {
    let entries = match map {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err("the resources are no map".to_owned()),
    };
    let entry = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(number) => Ok((name.clone(), number.to_string())),
        _ => Err(format!("the resource {name} is no quantity")),
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(value: Value) -> Resources {
        Resources::of_json(Some(&value)).unwrap()
    }

    #[test]
    fn a_missing_request_is_the_limit() {
        let found = resources(json!({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}));
        assert_eq!(
            found,
            resources(
                json!({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
            )
        );
        assert_eq!(Resources::of_json(None), Ok(Resources::default()));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for value in
            [json!({"limits": []}), json!({"requests": {"cpu": null}}), json!({"requests": {"cpu": {}}})]
        {
            Resources::of_json(Some(&value)).unwrap_err();
        }
    }

    #[test]
    fn equal_quantities_are_no_difference() {
        let new = resources(json!({"requests": {"cpu": "1", "memory": "1Gi"}}));
        let old = resources(json!({"requests": {"cpu": "1000m", "memory": "2Gi"}}));
        assert_eq!(new.without(&old), resources(json!({"requests": {"memory": "1Gi"}})));
        assert_eq!(new.without(&new), Resources::default());
    }
}
