//! The QoS class of pods of a template.

use std::collections::BTreeMap;

use podward_api::quantity;
use serde_json::{Map, Value};

use crate::template::resources::{RESIZABLE, Resources};

/// The QoS class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Returns the QoS class of a pod with this spec, as the API server computes it.
///
/// # Errors
/// Fails if resources are no quantities.
pub(super) fn class(spec: &Map<String, Value>) -> Result<QosClass, String> {
    let mut all = Vec::new();
    let of_pod = Resources::of_json(spec.get("resources"))?;
    if of_pod.is_empty() {
        let lists =
            ["containers", "initContainers"].into_iter().filter_map(|list| spec.get(list)?.as_array());
        for container in lists.flatten() {
            all.push(Resources::of_json(container.get("resources"))?);
        }
    } else {
        all.push(of_pod);
    }
    if all
        .iter()
        .all(|it| !RESIZABLE.iter().any(|name| counts(&it.limits, name) || counts(&it.requests, name)))
    {
        return Ok(QosClass::BestEffort);
    }
    let is_guaranteed = |it: &Resources| {
        RESIZABLE.iter().all(|name| {
            counts(&it.limits, name)
                && match (it.limits.get(*name), it.requests.get(*name)) {
                    (Some(limit), Some(request)) => quantity::is_equal(limit, request),
                    _ => false,
                }
        })
    };
    Ok(if all.iter().all(is_guaranteed) { QosClass::Guaranteed } else { QosClass::Burstable })
}

/// Returns true if the quantity is more than zero.
fn counts(map: &BTreeMap<String, String>, name: &str) -> bool {
    map.get(name).and_then(|text| quantity::nanos(text)).is_some_and(|value| value > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class_of(spec: Value) -> QosClass {
        class(spec.as_object().unwrap()).unwrap()
    }

    #[test]
    fn classes() {
        let container = |resources| json!({"containers": [{"name": "app", "resources": resources}]});
        let limits = json!({"cpu": 1, "memory": "1Gi"});
        assert_eq!(class_of(container(json!({}))), QosClass::BestEffort);
        assert_eq!(class_of(container(json!({"requests": {"cpu": 0}}))), QosClass::BestEffort);
        assert_eq!(class_of(container(json!({"limits": {"example.com/gpu": 1}}))), QosClass::BestEffort);
        assert_eq!(class_of(container(json!({"limits": limits}))), QosClass::Guaranteed);
        assert_eq!(
            class_of(container(json!({"limits": limits, "requests": {"cpu": "1000m"}}))),
            QosClass::Guaranteed
        );
        assert_eq!(
            class_of(container(json!({"limits": limits, "requests": {"cpu": "1m"}}))),
            QosClass::Burstable
        );
        assert_eq!(class_of(container(json!({"limits": {"cpu": 1}}))), QosClass::Burstable);
        let two = json!({"containers": [{"name": "app", "resources": {"limits": limits}}, {"name": "log"}]});
        assert_eq!(class_of(two.clone()), QosClass::Burstable);
        let mut of_pod = two;
        of_pod["resources"] = json!({"limits": limits});
        assert_eq!(class_of(of_pod), QosClass::Guaranteed, "the resources of the pod count");
        let init = json!({
            "containers": [{"name": "app", "resources": {"limits": limits}}],
            "initContainers": [{"name": "init", "resources": {"requests": {"cpu": 1}}}],
        });
        assert_eq!(class_of(init), QosClass::Burstable);
    }
}
