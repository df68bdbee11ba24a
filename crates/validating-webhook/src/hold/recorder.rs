//! Who writes wishes down: any replica of the lifecycle-controller.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use podward_core::Pod;
use podward_core::wish::{DeletionKind, Wish};
use podward_proto::v1;
use tonic::{Code, Status};

/// How long it may take: replicas that can't answer by then are no better than none.
const CALL: Duration = Duration::from_secs(3);

/// Records wishes to delete or evict pods.
pub trait Recorder: Send + Sync + 'static {
    /// gRPC `Lifecycle.RequestDeletion`. It has as much time as `patience` says.
    fn record(
        &self,
        request: v1::RequestDeletionRequest,
        patience: Duration,
    ) -> BoxFuture<'_, Result<v1::RequestDeletionResponse, Status>>;
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It stands on the pod.
    Yes(Wish),
    /// It isn't wanted now, for a reason that the caller is told as it is.
    Refused(String),
    /// It could not be recorded.
    Failed {
        /// The code of the call's failure.
        code: Code,
        /// Why, and what to do about it.
        why: String,
    },
}

/// Has `wish` for `pod` recorded, in the time that there is until `deadline`.
pub(crate) async fn record(recorder: &dyn Recorder, pod: &Pod, wish: Wish, deadline: Instant) -> Recorded {
    let request = v1::RequestDeletionRequest {
        pod: Some(v1::PodReference {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }),
        wish: Some(v1::DeletionWish {
            kind: match wish.kind {
                DeletionKind::Delete => v1::DeletionKind::Delete,
                DeletionKind::Evict => v1::DeletionKind::Evict,
            }
            .into(),
            requested_by: wish.requested_by.clone(),
            requested_at: None,
            grace_period_seconds: wish.grace_period_seconds,
        }),
    };
    let patience = deadline.saturating_duration_since(Instant::now()).min(CALL);
    match recorder.record(request, patience).await {
        Ok(response) => Recorded::Yes(as_recorded(wish, response)),
        Err(status) if status.code() == Code::ResourceExhausted && !status.message().is_empty() => {
            Recorded::Refused(status.message().to_owned())
        }
        Err(status) => Recorded::Failed { code: status.code(), why: explain(&status) },
    }
}

/// The wish as it stands on the pod: an earlier one may have been there.
fn as_recorded(ours: Wish, response: v1::RequestDeletionResponse) -> Wish {
    let Some(stands) = response.lifecycle.and_then(|lifecycle| lifecycle.deletion_wish) else { return ours };
    let at = stands
        .requested_at
        .map(|at| at.seconds.saturating_mul(1_000_000_000).saturating_add(at.nanos.into()));
    Wish {
        kind: match stands.kind() {
            v1::DeletionKind::Evict => DeletionKind::Evict,
            v1::DeletionKind::Delete => DeletionKind::Delete,
            v1::DeletionKind::Unspecified => ours.kind,
        },
        requested_at: at.unwrap_or(ours.requested_at),
        grace_period_seconds: stands.grace_period_seconds,
        requested_by: stands.requested_by,
        ..ours
    }
}

fn explain(status: &Status) -> String {
    let message = status.message();
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            format!("no lifecycle-controller could be reached ({message})")
        }
        Code::Unauthenticated | Code::PermissionDenied => format!(
            "the lifecycle-controller doesn't take the word of Podward's validating-webhook ({message}); see its --token-file, and \
             --trusted-requester of the lifecycle-controller"
        ),
        Code::NotFound => format!(
            "the lifecycle-controller doesn't know the pod, or knows another of that name ({message})"
        ),
        code => format!("the lifecycle-controller answers {code:?}: {message}"),
    }
}
