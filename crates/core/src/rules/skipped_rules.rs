//! The rules that a pod skips.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::model::keys::SKIP_RULES;

/// The longest text of the annotation that is read, in bytes. Every user who may write a pod can write the annotation.
const TEXT_LIMIT: usize = 16 * 1024;

/// The rules that a pod skips in all rule sets. Parse the annotation once for each version of the pod: a pod may have
/// thousands of operations, and each is checked by many rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRules {
    names: BTreeSet<String>,
    is_too_long: bool,
}

impl SkippedRules {
    /// Reads the text of the annotation [`SKIP_RULES`]. A text that cannot be read, or that has more than 16 KiB, skips
    /// none.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        SkippedRules {
            names: skipped_rules(text).into_iter().collect(),
            is_too_long: text.len() > TEXT_LIMIT,
        }
    }

    /// Returns whether the pod skips the rule with this name.
    #[must_use]
    pub fn contains(&self, rule: &str) -> bool {
        self.names.contains(rule)
    }

    /// Returns why the annotation is ignored; `None` if it is not too long.
    #[must_use]
    pub fn ignored_because(&self) -> Option<String> {
        let text = || format!("the annotation {SKIP_RULES} is ignored, because it has more than 16 KiB");
        self.is_too_long.then(text)
    }
}

/// Returns the rules that the annotation [`SKIP_RULES`] skips in all rule sets. A text that cannot be read, or that has
/// more than 16 KiB, skips none.
#[must_use]
pub fn skipped_rules(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Skip {
        #[serde(default, rename = "skipRules")]
        rules: Option<Vec<String>>,
    }
    if text.len() > TEXT_LIMIT {
        return Vec::new();
    }
    serde_json::from_str::<Skip>(text).ok().and_then(|skip| skip.rules).unwrap_or_default()
}
