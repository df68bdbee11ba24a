//! Label selectors: conversion from the API to `podward-core`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use podward_core::hooks::{InvalidSelector, Selector};

/// Compiles a selector. An empty selector matches everything.
///
/// # Errors
/// Fails if an expression is malformed, or if no labels can match all expressions.
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
