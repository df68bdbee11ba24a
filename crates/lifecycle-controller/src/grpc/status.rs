//! What callers are told of failures of the API server.

use std::time::Duration;

use tonic::Status;

/// No single call may take longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// `call` within the deadline. `what` is what it does, and to what.
pub(super) async fn timely<T>(
    what: impl Fn() -> String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Status> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| of_api(&what(), &error)),
        Err(_) => Err(Status::unavailable(format!(
            "could not {}: no answer from the API server within {DEADLINE:?}; try again",
            what()
        ))),
    }
}

fn of_api(what: &str, error: &kube::Error) -> Status {
    let kube::Error::Api(answer) = error else {
        return Status::unavailable(format!("could not {what}: {error}; try again"));
    };
    let text = format!("could not {what}: {}", answer.message);
    match answer.code {
        404 => Status::not_found(text),
        409 => Status::aborted(format!("{text}; try again")),
        400 | 422 => Status::invalid_argument(text),
        // The caller's own rights have been looked at before.
        401 | 403 => Status::internal(format!(
            "{text}; check the RBAC of the lifecycle-controller and admission policies"
        )),
        429 => Status::resource_exhausted(format!("{text}; try again")),
        _ => Status::unavailable(format!("{text}; try again")),
    }
}
