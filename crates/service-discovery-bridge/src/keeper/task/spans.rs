//! What the trace of an operation shows of an answer.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::HookPhase;

use super::super::calls::OpenCall;
use super::super::tracked::SyncState;
use super::BindingTask;
use crate::model::{Binding, CacheWaits};
use crate::sync::RegistryAccess;

/// What was done for a pod for this time before a question arrived belongs to it: the labels of the pod are often seen first.
const LOOK_BACK: Duration = Duration::from_secs(10);

impl BindingTask {
    /// Adds to the span of a question what was done for it since the last answer about this pod.
    pub(super) fn describe(
        &mut self,
        call: &mut OpenCall,
        binding: &Binding,
        access: &RegistryAccess,
        waits: CacheWaits,
        now: Duration,
    ) {
        let (Some(span), Some(tracked)) = (&mut call.span, self.tracked.get_mut(&call.pod.uid)) else {
            return;
        };
        let Some(desired) = tracked.desired(binding, access) else { return };
        let wall = podward_kube_util::now();
        let ago = |past: Duration| before(wall, now.saturating_sub(past));
        let mut calls = match &access.calls {
            Some(log) => log.about(tracked.reported_calls, &desired.service, &desired.instance),
            None => Vec::new(),
        };
        tracked.reported_calls = calls.last().map_or(tracked.reported_calls, |call| call.number);
        let earliest = ago(call.since.saturating_sub(LOOK_BACK));
        calls.retain(|call| call.begin >= earliest);
        span.about(&access.kind.to_string(), &desired, calls);
        let wait = waits.list_lag + waits.clients;
        if let SyncState::Shown { at, .. } = &tracked.state
            && call.phase == HookPhase::Prepare
            && !wait.is_zero()
        {
            span.waits_for_clients(ago(at.since), ago(now.min(at.unused_at(waits))));
        }
    }
}

fn before(wall: UnixNanos, past: Duration) -> UnixNanos {
    UnixNanos(wall.0.saturating_sub(i64::try_from(past.as_nanos()).unwrap_or(i64::MAX)))
}
