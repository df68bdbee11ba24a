//! Hooks, rule by rule.
