//! Answers to the lifecycle protocol of OpenKruise.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use podward_core::hooks::{EvidenceLevel, HookPhase};
use podward_runtime::retry::{ApiCallError, api_call};

use super::super::calls::{Answer, answer};
use super::BindingTask;
use crate::members::Fence;
use crate::model::{Binding, BoundPod};
use crate::sync::RegistryAccess;

/// Pods that are patched at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The pause before a patch that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// An answer that is to be written.
struct Marked {
    pod: Arc<BoundPod>,
    phase: HookPhase,
    operations: Vec<PatchOperation>,
    detail: String,
}

impl BindingTask {
    /// Writes the markers of pods of which the registry shows what their state wants.
    pub(super) async fn answer_kruise(&mut self, binding: &Binding, access: &RegistryAccess) {
        let now = self.shared.index.now();
        let waits = access.cache_waits(binding);
        self.kruise.due = None;
        let mut due = Vec::new();
        let mut marked = Vec::new();
        for (uid, tracked) in &mut self.tracked {
            let pod = Arc::clone(&tracked.pod);
            let Some(kruise) = &pod.kruise else { continue };
            let known = self.kruise.hooks.get(uid);
            // The workload of a terminating pod may be gone, or another one may have its name.
            let kept = known.filter(|_| kruise.terminating).map(Arc::clone);
            let Some(lifecycle) = kept.or_else(|| self.shared.index.lifecycle(&kruise.workload)) else {
                continue;
            };
            if !known.is_some_and(|known| Arc::ptr_eq(known, &lifecycle)) {
                self.kruise.hooks.insert(uid.clone(), Arc::clone(&lifecycle));
            }
            let Some(phase) = kruise.question() else { continue };
            let is_written = self.kruise.written.get(uid).is_some_and(|known| Arc::ptr_eq(known, &pod));
            if is_written || binding.deleting {
                continue;
            }
            let operations = kruise.answer(&lifecycle, uid, &pod.labels).and_then(|operations| {
                // Each would answer for its own registry only.
                match operations.is_empty() || self.shared.index.bindings_of(&pod).len() == 1 {
                    true => Ok(operations),
                    false => Err("several DiscoveryBindings select the pod; keep one of them".to_owned()),
                }
            });
            let operations = match operations {
                Ok(operations) if operations.is_empty() => continue,
                Ok(operations) => operations,
                Err(problem) => {
                    if self.kruise.refused.get(uid) != Some(&problem) {
                        tracing::warn!(binding = %self.key, pod = pod.name, workload = kruise.workload.name, problem, "the hook of OpenKruise is not answered");
                        self.kruise.refused.insert(uid.clone(), problem);
                    }
                    continue;
                }
            };
            let has_none = tracked.service.is_err() && tracked.moved.is_none();
            let found = match phase {
                // A pod that ends without an address gets none any more.
                HookPhase::Release if has_none => Answer::Done {
                    level: EvidenceLevel::Assumed,
                    detail: "no instance of the pod is known".to_owned(),
                },
                _ => answer(phase, tracked, access, waits, binding, now),
            };
            match found {
                Answer::Done { detail, .. } => marked.push(Marked { pod, phase, operations, detail }),
                Answer::Pending { wake, .. } => due.extend(wake),
            }
        }
        self.kruise.due = due.into_iter().min();
        self.kruise.written.retain(|uid, _| self.tracked.contains_key(uid));
        self.kruise.hooks.retain(|uid, _| self.tracked.contains_key(uid));
        self.kruise.refused.retain(|uid, _| self.tracked.contains_key(uid));
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.key.namespace);
        let writes: Vec<_> = marked.into_iter().map(|marked| write(&self.fence, &pods, marked)).collect();
        let results: Vec<_> = stream::iter(writes).buffer_unordered(MAX_CONCURRENT_CALLS).collect().await;
        for (Marked { pod, phase, detail, .. }, result) in results.into_iter().flatten() {
            match result {
                Ok(()) => {
                    tracing::info!(
                        binding = %self.key,
                        pod = pod.name,
                        phase = phase.as_str(),
                        detail,
                        "the hook of OpenKruise is answered"
                    );
                    self.kruise.written.insert(pod.uid.clone(), pod);
                }
                Err(error) => {
                    // The pod may have changed meanwhile.
                    tracing::warn!(binding = %self.key, pod = pod.name, %error, "could not write the markers of OpenKruise; trying again");
                    self.kruise.due = Some(now + RETRY);
                }
            }
        }
    }
}

/// Writes an answer. Returns `None` if another replica may be responsible for the binding by now.
async fn write(fence: &Fence, pods: &Api<Pod>, marked: Marked) -> Option<(Marked, Result<(), ApiCallError>)> {
    if !fence.is_open() {
        return None;
    }
    let patch = Patch::Json::<()>(json_patch::Patch(marked.operations.clone()));
    let written = api_call(pods.patch_metadata(&marked.pod.name, &PatchParams::default(), &patch)).await;
    Some((marked, written.map(drop)))
}
