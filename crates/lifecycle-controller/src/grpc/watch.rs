//! `Lifecycle.Watch`: one pod, after every change.

use std::pin::Pin;

use futures::{Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use podward_proto::v1;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::describe::describe;
use super::pods::{Pods, Which};
use crate::cached_pod::CachedPod;

/// What goes down a watch.
pub(super) type Changes = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

/// The pod's life now and after every change, until the pod is gone.
pub(super) fn changes(pods: &Pods, which: Which, place: OwnedSemaphorePermit) -> Changes {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", which.key.name));
    let events = watcher(pods.api(&which.key), only).default_backoff().boxed();
    let state = State { events, which, told: None, listed: false, _place: place };
    stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        match state.next().await {
            Ok(response) => Some((Ok(response), Some(state))),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

struct State {
    events: Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<CachedPod>>> + Send>>,
    which: Which,
    told: Option<v1::PodLifecycle>,
    /// Whether the list that is coming in has shown the pod.
    listed: bool,
    _place: OwnedSemaphorePermit,
}

impl State {
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
                    return Err(self.which.gone());
                }
                Some(Err(error)) => {
                    // Taken up again with back-off; what was missed comes with the new list.
                    tracing::debug!(pod = %self.which.key, "the watch of a pod broke off: {error}");
                    continue;
                }
                None => return Err(Status::unavailable("the watch of the pod has ended; watch again")),
            };
            self.which.check(&pod)?;
            // From now on it is this pod that is watched, and not one of the same name that comes after it.
            self.which.uid.get_or_insert_with(|| pod.uid().to_owned());
            let lifecycle = describe(&pod);
            if self.told.as_ref() != Some(&lifecycle) {
                self.told = Some(lifecycle.clone());
                return Ok(v1::WatchResponse { lifecycle: Some(lifecycle) });
            }
        }
    }
}
