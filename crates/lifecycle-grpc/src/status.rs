//! Statuses for failed requests to the API server, and for invalid hooks.

use podward_api::{HookName, InvalidHook};
use podward_runtime::retry::{ApiCallError, api_call};
use tonic::Status;

/// Returns the response to one request to the API server. `action` describes the request and its object, for messages.
///
/// # Errors
///
/// When the request fails, with a status for the caller.
pub(super) async fn api_request<T>(
    action: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Status> {
    api_call(request).await.map_err(|error| status_of(&action(), &error))
}

fn status_of(action: &str, error: &ApiCallError) -> Status {
    let answer = match error {
        ApiCallError::Failed(error) => match &**error {
            kube::Error::Api(answer) => answer,
            other => return Status::unavailable(format!("could not {action}: {other}; try again")),
        },
        ApiCallError::TimedOut(_) => {
            return Status::unavailable(format!("could not {action}: {error}; try again"));
        }
    };
    let text = format!("could not {action}: {}", answer.message);
    match answer.code {
        404 => Status::not_found(text),
        409 => Status::aborted(format!("{text}; try again")),
        400 | 422 => Status::invalid_argument(text),
        // The rights of the caller have been checked before: Podward's own rights are missing.
        401 | 403 => Status::internal(format!(
            "{text}; check the RBAC of the lifecycle-controller and admission policies"
        )),
        429 => Status::resource_exhausted(format!("{text}; try again")),
        _ => Status::unavailable(format!("{text}; try again")),
    }
}

/// Returns the name of a hook. It becomes part of a request path.
///
/// # Errors
///
/// INVALID_ARGUMENT if it is not valid.
pub(super) fn hook_name(namespace: &str, name: &str) -> Result<HookName, Status> {
    HookName::new(namespace, name).map_err(|error| invalid_hook(&error))
}

/// Returns the status for an invalid hook.
pub(super) fn invalid_hook(error: &InvalidHook) -> Status {
    // The error names fields of the resource, which are similar to those of the message.
    Status::invalid_argument(format!("the hook is not valid: {error}"))
}
