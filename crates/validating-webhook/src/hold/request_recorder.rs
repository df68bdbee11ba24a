//! Recording deletion requests on pods.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use podward_core::Pod;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::DELETE_OPERATION;
use podward_proto::v1;
use podward_runtime::admission::{AdmissionUser, ChangedOperation};
use tonic::{Code, Status};

/// The timeout of a call. A replica that needs longer counts as unavailable.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Records requests to delete or evict pods.
pub trait RequestRecorder: Send + Sync + 'static {
    /// Calls `Lifecycle.RequestDeletion` with a timeout.
    fn record(
        &self,
        request: v1::RequestDeletionRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<v1::RequestDeletionResponse, Status>>;
}

/// The result of recording a deletion request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordingResult {
    /// The request is recorded on the pod.
    Recorded {
        /// The request on the pod.
        request: Box<DeletionRequest>,
        /// The operation of the request, if the request was recorded now.
        operation: Option<ChangedOperation>,
    },
    /// The lifecycle-controller refuses the request now. The text is for the caller.
    Refused(String),
    /// The user of the review may not delete or evict the pod. The text is for the caller.
    Forbidden(String),
    /// The request could not be recorded.
    Failed {
        /// The gRPC code of the call.
        code: Code,
        /// The reason, and what to do about it.
        why: String,
    },
}

/// Records a deletion request on `pod` before `deadline`.
pub(super) async fn record(
    recorder: &dyn RequestRecorder,
    pod: &Pod,
    requester: &AdmissionUser<'_>,
    deletion_request: DeletionRequest,
    deadline: Instant,
) -> RecordingResult {
    let request = v1::RequestDeletionRequest {
        pod: Some(v1::PodReference {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }),
        deletion_request: Some(v1::DeletionRequest {
            kind: match deletion_request.kind {
                DeletionKind::Delete => v1::DeletionKind::Delete,
                DeletionKind::Evict => v1::DeletionKind::Evict,
            }
            .into(),
            requested_by: String::new(),
            requested_at: None,
            grace_period_seconds: deletion_request.grace_period_seconds,
        }),
        requester: Some(identity(requester)),
    };
    let timeout = deadline.saturating_duration_since(Instant::now()).min(CALL_TIMEOUT);
    match recorder.record(request, timeout).await {
        Ok(response) => RecordingResult::Recorded {
            operation: operation(pod, &response),
            request: Box::new(as_recorded(deletion_request, response)),
        },
        Err(status) if status.code() == Code::ResourceExhausted && !status.message().is_empty() => {
            RecordingResult::Refused(status.message().to_owned())
        }
        Err(status) if status.code() == Code::PermissionDenied => {
            RecordingResult::Forbidden(status.message().to_owned())
        }
        Err(status) => RecordingResult::Failed { code: status.code(), why: explain(&status) },
    }
}

fn identity(user: &AdmissionUser<'_>) -> v1::Requester {
    let extra =
        user.extra.iter().map(|(key, values)| (key.clone(), v1::RequesterExtra { values: values.clone() }));
    v1::Requester {
        user: user.username.to_string(),
        uid: user.uid.to_string(),
        groups: user.groups.clone(),
        extra: extra.collect(),
    }
}

/// Returns the request that is recorded on the pod. It may differ from `sent`, because it is merged with an earlier
/// request.
fn as_recorded(sent: DeletionRequest, response: v1::RequestDeletionResponse) -> DeletionRequest {
    let Some(recorded) = response.lifecycle.and_then(|lifecycle| lifecycle.deletion_request) else {
        return sent;
    };
    let at = recorded
        .requested_at
        .map(|at| at.seconds.saturating_mul(1_000_000_000).saturating_add(at.nanos.into()));
    DeletionRequest {
        kind: match recorded.kind() {
            v1::DeletionKind::Evict => DeletionKind::Evict,
            v1::DeletionKind::Delete => DeletionKind::Delete,
            v1::DeletionKind::Unspecified => sent.kind,
        },
        requested_at: at.unwrap_or(sent.requested_at),
        grace_period_seconds: recorded.grace_period_seconds,
        requested_by: recorded.requested_by,
        ..sent
    }
}

/// Returns the operation that executes the request. `None` if there is none: the pod's CloneSet executes the request, or the
/// lifecycle-controller is of a version that does not tell the run.
fn operation(pod: &Pod, response: &v1::RequestDeletionResponse) -> Option<ChangedOperation> {
    let operations = &response.lifecycle.as_ref()?.operations;
    let is_deletion = |state: &&v1::OperationState| {
        state.operation.as_ref().is_some_and(|operation| operation.id == DELETE_OPERATION)
    };
    let run = operations.iter().find(is_deletion).map(|state| &state.run).filter(|run| !run.is_empty())?;
    Some(ChangedOperation {
        pod_uid: pod.metadata.uid.clone(),
        id: DELETE_OPERATION.to_owned(),
        run: run.clone(),
    })
}

fn explain(status: &Status) -> String {
    let message = status.message();
    match status.code() {
        Code::DeadlineExceeded => {
            format!(
                "the lifecycle-controller has not answered in time ({message}), and it may still be recorded"
            )
        }
        Code::Unavailable | Code::Cancelled | Code::Unknown => {
            format!("could not reach the lifecycle-controller ({message})")
        }
        Code::Unauthenticated | Code::InvalidArgument => format!(
            "the lifecycle-controller does not accept requests of the validating-webhook ({message}); check --token-file of \
             the validating-webhook and --trusted-requester of the lifecycle-controller"
        ),
        Code::NotFound => format!(
            "the lifecycle-controller does not know the pod, or knows another pod of that name ({message})"
        ),
        code => format!("the lifecycle-controller returned {code:?}: {message}"),
    }
}
