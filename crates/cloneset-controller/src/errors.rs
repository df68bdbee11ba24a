//! Failures of a reconciliation.

use std::time::Duration;

use kube::core::Status;
use podward_runtime::retry::{ApiCallError, api_call};
use thiserror::Error;

/// The cause of a failure in a namespace that is being deleted.
const NAMESPACE_ENDS: &str = "NamespaceTerminating";

/// A reconciliation of a set did not come to its end. It is repeated; other sets are not affected.
#[derive(Debug, Error)]
pub(crate) enum SetError {
    /// A request to the API server failed.
    #[error("could not {what} {object}: {source}")]
    Api {
        /// A verb phrase such as `create pod`.
        what: &'static str,
        object: String,
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("could not {what} {object}: no answer from the API server within {after:?}")]
    TimedOut { what: &'static str, object: String, after: Duration },
    /// The set cannot be carried out as it is.
    #[error("CloneSet {object}: {problem}")]
    Invalid { object: String, problem: String },
}

impl SetError {
    /// Returns the code of the answer of the API server. `None` if there was none.
    pub(crate) fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    fn status(&self) -> Option<&Status> {
        let SetError::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        Some(status)
    }

    /// Returns the text without the name of the object, so that the failures of several objects can be compared.
    pub(crate) fn cause(&self) -> String {
        let (SetError::Api { object, .. }
        | SetError::TimedOut { object, .. }
        | SetError::Invalid { object, .. }) = self;
        let name = object.rsplit(['/', ' ']).next().unwrap_or_default();
        self.to_string().replace(name, "")
    }

    /// Returns true if another writer was faster, or the object or its namespace is gone or being deleted: the watch
    /// delivers what has changed.
    pub(crate) fn is_outdated(&self) -> bool {
        let is_outdated = self.status().is_some_and(|status| match status.code {
            // With another reason, the API server does not have the path.
            404 => status.reason == "NotFound",
            // With another reason, another writer was faster.
            409 => !status.is_already_exists(),
            _ => false,
        });
        is_outdated || self.is_in_ending_namespace()
    }

    /// Returns true if the request can be repeated soon, because another writer was faster. In a namespace that ends,
    /// that is of no use.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.is_outdated() && !self.is_in_ending_namespace()
    }

    /// Returns true if another object has the name of the one that was to be created.
    pub(crate) fn is_name_taken(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Returns true if the request failed because the namespace is being deleted.
    pub(crate) fn is_in_ending_namespace(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == NAMESPACE_ENDS))
    }

    /// Returns true if the API server refused the request, so that it is of no use to repeat it soon.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 422)) || matches!(self, SetError::Invalid { .. })
    }
}

/// Returns the failure of two that matters more: one that is not repeated soon.
pub(crate) fn first_problem(first: Option<SetError>, second: Option<SetError>) -> Option<SetError> {
    match (first, second) {
        (Some(first), Some(second)) if first.is_outdated() => Some(second),
        (first, second) => first.or(second),
    }
}

/// Waits for the answer to one request about `object`. `what` is a verb phrase such as `create pod`.
pub(crate) async fn call<T>(
    what: &'static str,
    object: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, SetError> {
    api_call(request).await.map_err(|error| match error {
        ApiCallError::Failed(source) => SetError::Api { what, object: object.to_owned(), source },
        ApiCallError::TimedOut(after) => SetError::TimedOut { what, object: object.to_owned(), after },
    })
}

#[cfg(test)]
mod tests {
    use podward_core::webhook_path::PathSecret;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_path_of_a_webhook_is_shown_without_its_secret() {
        let path = PathSecret::of_random([0xab; 32]).path("/mutate");
        let text = format!("Post \"https://mutating-webhook.podward-system.svc:443{path}\": EOF");
        let details = json!({"causes": [{"message": text}]});
        let status = json!({"status": "Failure", "code": 500, "message": text, "details": details});
        let refused = kube::Error::Api(serde_json::from_value(status).unwrap());
        let error = call("create pod", "shop/web", async { Err::<(), _>(refused) }).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(".svc:443/<secret>/mutate") && !text.contains("abab"), "{text}");
    }

    #[test]
    fn a_namespace_that_ends_is_no_problem() {
        let refused = |cause: &str| {
            let details =
                json!({"causes": [{"reason": cause, "message": "", "field": "metadata.namespace"}]});
            let status = json!({"status": "Failure", "code": 403, "message": "", "reason": "Forbidden", "details": details});
            let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
            SetError::Api { what: "create pod", object: "shop/web".to_owned(), source }
        };
        assert!(refused("NamespaceTerminating").is_outdated());
        assert!(!refused("Quota").is_outdated() && refused("Quota").is_refused());
    }

    #[test]
    fn a_name_that_another_object_has_is_a_problem_and_a_faster_writer_is_none() {
        let conflict = |reason: &str| {
            let status = json!({"status": "Failure", "code": 409, "message": "", "reason": reason});
            let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
            SetError::Api { what: "create pod", object: "shop/web".to_owned(), source }
        };
        assert!(conflict("Conflict").is_outdated() && !conflict("AlreadyExists").is_outdated());
    }

    /// Without the feature gate, the API server has no `pods/resize`, and its answer is a text.
    #[test]
    fn an_object_that_is_gone_is_no_problem_and_a_path_that_does_not_exist_is_one() {
        let missing = |reason: &str| {
            let status = json!({"status": "Failure", "code": 404, "message": "", "reason": reason});
            let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
            SetError::Api { what: "resize pod", object: "shop/web".to_owned(), source }
        };
        assert!(missing("NotFound").is_outdated());
        assert!(!missing("Failed to parse error data").is_outdated());
    }
}
