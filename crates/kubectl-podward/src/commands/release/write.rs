//! Releases one pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use podward_core::release::{OtherFinalizers, Release};
use podward_runtime::retry::{ExponentialBuilder, api_call, delay_after, jittered};

use super::events;
use super::patch::{body, decide};

/// The maximum number of writes to a pod. A write can be in vain: another client writes first, or an API server that
/// has not seen yet that the webhook configurations were deleted lets a webhook add labels to the write.
const MAX_ATTEMPTS: u32 = 8;
/// The delay before the second write. It doubles for each further write.
const WRITE: ExponentialBuilder = jittered(Duration::from_millis(100), Duration::from_secs(2));

/// The outcome for a pod.
pub(super) struct PodReleaseOutcome {
    pub(super) pod: String,
    pub(super) uid: String,
    /// What was removed, or would be removed in a dry run.
    pub(super) release: Release,
    pub(super) is_terminating: bool,
    pub(super) result: PodReleaseResult,
}

/// The result for a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodReleaseResult {
    /// There was nothing to write.
    Untouched,
    /// The pod was released, or would be released in a dry run.
    Released,
    /// The pod no longer exists.
    Gone,
    /// The pod could not be released. The text says why.
    Failed(String),
}

/// Releases pods.
pub(super) struct ReleaseWriter {
    client: Client,
    other_finalizers: OtherFinalizers,
    dry_run: bool,
}

impl ReleaseWriter {
    pub(super) fn new(client: Client, other_finalizers: OtherFinalizers, dry_run: bool) -> Self {
        ReleaseWriter { client, other_finalizers, dry_run }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Writes until nothing is left to remove, according to the API server's answer.
    pub(super) async fn release(&self, pod: Pod) -> PodReleaseOutcome {
        let release = decide(&pod, self.other_finalizers);
        let mut outcome = PodReleaseOutcome {
            pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            uid: pod.uid().unwrap_or_default(),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            result: if release.is_empty() { PodReleaseResult::Untouched } else { PodReleaseResult::Released },
            release,
        };
        if !outcome.release.is_empty() && !self.dry_run {
            outcome.result = self.write(&pod).await;
            if outcome.result == PodReleaseResult::Released {
                events::record(&self.client, &pod, &outcome.release).await;
            }
        }
        outcome
    }

    async fn write(&self, pod: &Pod) -> PodReleaseResult {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let (name, uid) = (pod.name_any(), pod.uid());
        let mut latest = pod.clone();
        let mut last = "other clients change the pod too often".to_owned();
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(delay_after(WRITE, attempt)).await;
            }
            let release = decide(&latest, self.other_finalizers);
            if release.is_empty() {
                return PodReleaseResult::Released;
            }
            let patch = Patch::Strategic(body(&latest, &release, Timestamp::now()));
            let params = PatchParams::default();
            match api_call(pods.patch_status(&name, &params, &patch)).await {
                Ok(written) => {
                    if decide(&written, self.other_finalizers).is_empty() {
                        return PodReleaseResult::Released;
                    }
                    "another client adds the removed metadata again: check whether Podward, or another controller \
                     of its protocol, still runs"
                        .clone_into(&mut last);
                    latest = written;
                    continue;
                }
                Err(error) if error.is_not_found() => return PodReleaseResult::Gone,
                Err(error) if error.is_conflict() => {}
                Err(error) => last = error.to_string(),
            }
            match api_call(pods.get(&name)).await {
                Ok(found) if found.uid() != uid => return PodReleaseResult::Gone,
                Ok(found) => latest = found,
                Err(error) if error.is_not_found() => return PodReleaseResult::Gone,
                // The next write reports the error.
                Err(_) => {}
            }
        }
        PodReleaseResult::Failed(last)
    }
}
