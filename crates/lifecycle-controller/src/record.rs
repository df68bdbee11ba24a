//! Deletion requests that reach the leader: they are recorded together with the steps that follow from them.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::runtime::reflector::{ObjectRef, Store};
use podward_core::deletion::request::{DeletionRequest, DeletionRequestChanges};
use podward_core::with_next_steps;
use podward_deletion::{DeletionStep, RecordingLeader};
use podward_kube_util::{ApiError, CachedPod, PodKey, unix_nanos};

use crate::context::Context;
use crate::decide::decide;
use crate::write::{ConditionChange, PodWrite};

/// Records deletion requests in the name of the leader.
pub(crate) struct Recorder {
    store: Store<CachedPod>,
    context: Arc<Context>,
}

impl Recorder {
    /// Returns a recorder on the pods of `store` and the writes of `context`.
    pub(crate) fn new(store: Store<CachedPod>, context: Arc<Context>) -> Self {
        Self { store, context }
    }

    /// See [`RecordingLeader::record`]. This is the reconciliation of a pod whose only change is the request. The
    /// reconciliation after the write reports it, and does what does not have to be done at once.
    async fn record(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        changes: &DeletionRequestChanges,
    ) -> Result<Option<Arc<CachedPod>>, ApiError> {
        let Context { deciders, report, writer, .. } = &*self.context;
        if !deciders.deletions.may_record_with_steps(pod, request) {
            return Ok(None);
        }
        let _work = self.context.progress.begin();
        let now = Timestamp::now();
        // With the check request, for which the rules are looked up.
        let labels = with_next_steps(&pod.view(), &changes.labels, unix_nanos(now));
        let Some(rules) = deciders.rules.look_up(&pod.with_labels(&labels)).await else { return Ok(None) };
        let step = DeletionStep::change(DeletionRequestChanges { labels, ..changes.clone() });
        let Some(observation) = deciders.observe_with(rules, pod, &step, now) else { return Ok(None) };
        let decision = decide(&observation);
        report.hooks_reported(pod, &decision.plan);
        let write = PodWrite::new(&decision.plan, observation.rules.details(pod), ConditionChange::Keep);
        let stored = self.context.observed(writer.write_now(pod, write).await?);
        deciders.follow_up(pod, &stored, &step, &decision.plan).await;
        Ok(Some(stored))
    }
}

impl RecordingLeader for Recorder {
    fn newest(&self, key: &PodKey) -> Option<Arc<CachedPod>> {
        let watched = self.store.get(&ObjectRef::new(&key.name).within(&key.namespace))?;
        Some(self.context.cache.newest(watched))
    }

    fn record<'a>(
        &'a self,
        pod: &'a CachedPod,
        request: &'a DeletionRequest,
        changes: &'a DeletionRequestChanges,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, ApiError>> {
        self.record(pod, request, changes).boxed()
    }
}
