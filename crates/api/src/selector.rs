//! Label selectors, from the API's form into the engine's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use podward_core::hooks::{InvalidSelector, Selector};

/// Compiles a selector. An empty one matches everything.
///
/// # Errors
/// When an expression is malformed, or no labels can match all of them.
pub fn compile(selector: &LabelSelector) -> Result<Selector, InvalidSelector> {
    let equal = selector.match_labels.clone().unwrap_or_default();
    let requirements = selector.match_expressions.iter().flatten().map(|requirement| {
        (
            requirement.key.clone(),
            requirement.operator.clone(),
            requirement.values.clone().unwrap_or_default(),
        )
    });
    Selector::new(equal, requirements)
}
