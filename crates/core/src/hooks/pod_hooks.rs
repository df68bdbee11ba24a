//! The hooks of one pod.

use std::sync::Arc;

use super::hook::Hook;
use super::question::{HookAnswers, NoHookAnswers};
use super::set::{HookSet, NO_HOOKS};

/// The hooks of one pod, and their answers.
///
/// `known` must contain all hooks of the cluster: finalizers of other hooks are removed from the pod.
#[derive(Clone, Copy)]
pub struct PodHooks<'a> {
    /// The hooks that match the pod.
    pub hooks: &'a [Arc<Hook>],
    /// All hooks of the cluster.
    pub known: &'a HookSet,
    /// The answers to the questions about this pod.
    pub answers: &'a dyn HookAnswers,
}

impl PodHooks<'_> {
    /// Returns the value for a cluster without hooks.
    #[must_use]
    pub fn none() -> PodHooks<'static> {
        PodHooks { hooks: &[], known: &NO_HOOKS, answers: &NoHookAnswers }
    }
}
