//! `Lifecycle.Watch`: the state of one pod after every change.

use std::pin::Pin;

use futures::{Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use podward_kube_util::CachedPod;
use podward_proto::v1;
use tonic::Status;

use super::describe::describe;
use super::pod_target::PodTarget;
use super::pods::Pods;
use super::revocation::Responses;
use super::stream_limit::CountedStream;

/// The responses of one watch.
pub(super) type WatchResponses = Responses<v1::WatchResponse>;

/// Returns the state of the pod now and after every change, until the pod is gone.
pub(super) fn watch(pods: &Pods, target: PodTarget, counted: CountedStream) -> WatchResponses {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", target.key.name));
    let events = watcher(pods.api(&target.key), only).default_backoff().boxed();
    let state = PodWatch { events, target, sent: None, listed: false, _counted: counted };
    stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        match state.next().await {
            Ok(response) => Some((Ok(response), Some(state))),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

/// The state of one watch.
struct PodWatch {
    events: Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<CachedPod>>> + Send>>,
    target: PodTarget,
    /// The state that was sent last.
    sent: Option<v1::PodLifecycle>,
    /// True if the current initial list contains the pod.
    listed: bool,
    _counted: CountedStream,
}

impl PodWatch {
    async fn next(&mut self) -> Result<v1::WatchResponse, Status> {
        loop {
            let pod = match self.events.next().await {
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    self.listed = true;
                    pod
                }
                Some(Ok(watcher::Event::Apply(pod))) => pod,
                Some(Ok(watcher::Event::Init)) => {
                    self.listed = false;
                    continue;
                }
                Some(Ok(watcher::Event::InitDone)) if self.listed => continue,
                Some(Ok(watcher::Event::InitDone | watcher::Event::Delete(_))) => {
                    return Err(self.target.not_found());
                }
                Some(Err(error)) => {
                    // The watcher retries with back-off. The next list contains the missed changes.
                    tracing::debug!(pod = %self.target.key, "the watch of the pod failed: {error}");
                    continue;
                }
                None => return Err(Status::unavailable("the watch of the pod has ended; watch again")),
            };
            self.target.check_uid(&pod)?;
            // A later pod with the same name is another pod.
            self.target.uid.get_or_insert_with(|| pod.uid().to_owned());
            let lifecycle = describe(&pod);
            if self.sent.as_ref() != Some(&lifecycle) {
                self.sent = Some(lifecycle.clone());
                return Ok(v1::WatchResponse { lifecycle: Some(lifecycle) });
            }
        }
    }
}
