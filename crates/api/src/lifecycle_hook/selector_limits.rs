//! The largest selectors of a hook. Each selector is compared with the labels of every opted-in pod or of its namespace,
//! also if a team has written it for its own namespace. Only new and changed hooks are checked: a hook with a larger
//! selector that an earlier version has stored stays in use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::Schema;
use serde_json::Value;

use super::LifecycleHook;
use super::invalid::{InvalidHook, wrong};

/// The largest number of `matchLabels`, and of `matchExpressions`.
const MAX_REQUIREMENTS: usize = 64;
/// The largest number of values of an expression.
const MAX_VALUES: usize = 256;

impl LifecycleHook {
    /// Checks the sizes of the selectors, as the schema of the resource does.
    ///
    /// # Errors
    /// Fails if a selector has too many labels, expressions or values.
    pub fn check_selector_sizes(&self) -> Result<(), InvalidHook> {
        let spec = &self.spec;
        [("spec.podSelector", &spec.pod_selector), ("spec.namespaceSelector", &spec.namespace_selector)]
            .into_iter()
            .try_for_each(|(field, selector)| selector.as_ref().map_or(Ok(()), |some| check(field, some)))
    }
}

fn check(field: &'static str, selector: &LabelSelector) -> Result<(), InvalidHook> {
    let labels = selector.match_labels.as_ref().map_or(0, |labels| labels.len());
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    for (count, what) in [(labels, "matchLabels"), (expressions.len(), "matchExpressions")] {
        if count > MAX_REQUIREMENTS {
            return wrong(field, format!("{what} has {count} entries; the maximum is {MAX_REQUIREMENTS}"));
        }
    }
    let values = expressions.iter().flat_map(|expression| &expression.values).map(Vec::len).max();
    match values.filter(|count| *count > MAX_VALUES) {
        Some(count) => wrong(field, format!("an expression has {count} values; the maximum is {MAX_VALUES}")),
        None => Ok(()),
    }
}

/// Adds the limits to the schema of a selector.
pub(super) fn bounded(schema: &mut Schema) {
    for (path, bound, most) in [
        ("/properties/matchLabels", "maxProperties", MAX_REQUIREMENTS),
        ("/properties/matchExpressions", "maxItems", MAX_REQUIREMENTS),
        ("/properties/matchExpressions/items/properties/values", "maxItems", MAX_VALUES),
    ] {
        if let Some(Value::Object(part)) = schema.pointer_mut(path) {
            part.insert(bound.to_owned(), most.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::CustomResourceExt;
    use serde_json::json;

    use super::*;

    fn with_selector(selector: Value) -> LifecycleHook {
        serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": "lb"},
            "spec": {"phases": ["Prepare"], "attachment": {}, "podSelector": selector},
        }))
        .unwrap()
    }

    fn problem(selector: Value) -> String {
        let checked = with_selector(selector).check_selector_sizes();
        checked.err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn labels(count: usize) -> Value {
        (0..count).map(|key| (format!("key-{key}"), json!("a"))).collect::<serde_json::Map<_, _>>().into()
    }

    #[test]
    fn large_selectors_are_refused() {
        let keys = |count: usize| -> Value {
            (0..count).map(|key| json!({"key": format!("key-{key}"), "operator": "DoesNotExist"})).collect()
        };
        let values = |count: usize| {
            let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
            json!([{"key": "a", "operator": "In", "values": values}])
        };
        assert_eq!(problem(json!({"matchLabels": labels(MAX_REQUIREMENTS)})), "");
        assert_eq!(problem(json!({"matchExpressions": keys(MAX_REQUIREMENTS)})), "");
        assert_eq!(problem(json!({"matchExpressions": values(MAX_VALUES)})), "");
        for (selector, words) in [
            (json!({"matchLabels": labels(MAX_REQUIREMENTS + 1)}), "matchLabels has 65 entries"),
            (json!({"matchExpressions": keys(11_000)}), "matchExpressions has 11000 entries"),
            (json!({"matchExpressions": values(MAX_VALUES + 1)}), "an expression has 257 values"),
        ] {
            let problem = problem(selector);
            assert!(problem.starts_with("spec.podSelector: ") && problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn a_stored_hook_with_a_large_selector_stays_in_use() {
        let stored = with_selector(json!({"matchLabels": labels(MAX_REQUIREMENTS + 1)}));
        assert_eq!(stored.to_hook().map(|hook| hook.name), Ok("lb".to_owned()));
    }

    #[test]
    fn the_definition_has_the_limits() {
        let definition = serde_json::to_value(LifecycleHook::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        for selector in ["podSelector", "namespaceSelector"] {
            let at =
                |path: &str| definition.pointer(&format!("{spec}/{selector}/properties/{path}")).cloned();
            assert_eq!(at("matchLabels/maxProperties"), Some(json!(64)), "{selector}");
            assert_eq!(at("matchExpressions/maxItems"), Some(json!(64)), "{selector}");
            assert_eq!(
                at("matchExpressions/items/properties/values/maxItems"),
                Some(json!(256)),
                "{selector}"
            );
        }
    }
}
