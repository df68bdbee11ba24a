//! Everything that a decision about one pod depends on, read once.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use podward_core::hooks::{Hook, HookAnswers, HookSet};
use podward_core::keys::SERVICE_AVAILABLE;
use podward_core::{PodView, UnixNanos};
use podward_deletion::DeletionStep;
use podward_kube_util::CachedPod;
use podward_rules::PodRules;

use crate::gone_services::GoneService;

/// Everything that a decision about one pod depends on.
pub(crate) struct Observation<'a> {
    pub(crate) pod: &'a CachedPod,
    /// The pod as it is stored.
    pub(crate) stored: PodView<'a>,
    /// The time of the decision.
    pub(crate) now: UnixNanos,
    /// For how long the condition Ready cannot be relied on yet.
    pub(crate) ready_in_doubt: Option<SignedDuration>,
    /// The changes for the deletion of the pod.
    pub(crate) deletion: &'a DeletionStep,
    /// The results of the PodTransitionRules.
    pub(crate) rules: PodRules,
    /// The hooks that select the pod.
    pub(crate) hooks: Vec<Arc<Hook>>,
    /// All hooks.
    pub(crate) known: Arc<HookSet>,
    /// The answers of the hooks.
    pub(crate) answers: Box<dyn HookAnswers + Send + Sync>,
    /// How long operations wait for busy pods.
    pub(crate) max_busy: Duration,
    /// The consumers among the expected finalizers whose Service will never hold the pod.
    pub(crate) dead_services: Vec<String>,
    /// The Services that hold the pod and do not exist any more.
    pub(crate) gone_services: Vec<GoneService>,
}

impl<'a> Observation<'a> {
    /// Returns the pod as the decision treats it. While Ready is in doubt, a pod does not become available, but an
    /// available pod stays available.
    pub(crate) fn effective(&self) -> PodView<'a> {
        let is_in_service = self.stored.labels.contains_key(SERVICE_AVAILABLE);
        let ready = self.stored.ready && (is_in_service || self.ready_in_doubt.is_none());
        PodView { ready, ..self.stored }
    }
}
