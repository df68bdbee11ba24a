//! PodTransitionRules.

pub(crate) mod webhook;
