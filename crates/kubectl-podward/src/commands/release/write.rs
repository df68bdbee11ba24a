//! Carries a decision out on one pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use podward_core::release::{Release, ThirdParties};

use super::events;
use super::patch::{body, decide};

/// One answer of the API server.
const ANSWER: Duration = Duration::from_secs(10);
/// Writes to a pod until it counts as one that can't be released. Some come to nothing: somebody else writes first, or an API server
/// that hasn't heard yet that the webhooks are gone has them add labels to the very write.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What became of a pod.
pub(super) struct Outcome {
    pub(super) pod: String,
    pub(super) uid: String,
    /// What was taken off it, or would be: what the first look said.
    pub(super) release: Release,
    pub(super) is_terminating: bool,
    pub(super) ended: Ended,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// There was nothing to write.
    Untouched,
    /// It was written, or, in a dry run, would be.
    Released,
    /// It is gone meanwhile.
    Gone,
    /// It could not be, and why.
    Failed(String),
}

/// Writes to pods.
pub(super) struct Writer {
    client: Client,
    third_parties: ThirdParties,
    dry_run: bool,
}

impl Writer {
    pub(super) fn new(client: Client, third_parties: ThirdParties, dry_run: bool) -> Self {
        Writer { client, third_parties, dry_run }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Writes until nothing is left to take off, as the API server's own answer shows it.
    pub(super) async fn release(&self, pod: Pod) -> Outcome {
        let release = decide(&pod, self.third_parties);
        let mut outcome = Outcome {
            pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
            uid: pod.uid().unwrap_or_default(),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            ended: if release.is_empty() { Ended::Untouched } else { Ended::Released },
            release,
        };
        if !outcome.release.is_empty() && !self.dry_run {
            outcome.ended = self.carry_out(&pod).await;
            if outcome.ended == Ended::Released {
                events::tell(&self.client, &pod, &outcome.release).await;
            }
        }
        outcome
    }

    async fn carry_out(&self, pod: &Pod) -> Ended {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let (name, uid) = (pod.name_any(), pod.uid());
        let mut latest = pod.clone();
        let mut last = "it changes faster than it can be written".to_owned();
        for turn in 0..TRIES {
            if turn > 0 {
                tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(turn - 1).min(20)).await;
            }
            let release = decide(&latest, self.third_parties);
            if release.is_empty() {
                return Ended::Released;
            }
            let patch = Patch::Strategic(body(&latest, &release, Timestamp::now()));
            let params = PatchParams::default();
            let write = pods.patch_status(&name, &params, &patch);
            match tokio::time::timeout(ANSWER, write).await {
                Ok(Ok(written)) => {
                    if decide(&written, self.third_parties).is_empty() {
                        return Ended::Released;
                    }
                    "somebody puts back what was taken off: is Podward, or another controller of its protocol, still at work?"
                        .clone_into(&mut last);
                    latest = written;
                    continue;
                }
                Ok(Err(error)) if is_gone(&error) => return Ended::Gone,
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = format!("no answer from the API server within {ANSWER:?}"),
            }
            match tokio::time::timeout(ANSWER, pods.get(&name)).await {
                Ok(Ok(found)) if found.uid() != uid => return Ended::Gone,
                Ok(Ok(found)) => latest = found,
                Ok(Err(error)) if is_gone(&error) => return Ended::Gone,
                // The next write says more.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Ended::Failed(last)
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
