//! Requests to the API server.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Error, Result};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher;
use podward_runtime::retry::{API_TIMEOUT, ApiCallError, api_call_within};
use serde::de::DeserializeOwned;

/// The objects in an answer to a list.
const PAGE: u32 = 500;
/// How often a list begins again because its next page is not available any more.
const RESTARTS: usize = 3;

/// Waits for an answer of the API server with a deadline.
pub(crate) async fn with_timeout<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T> {
    within(API_TIMEOUT, answer).await
}

/// As [`with_timeout`], with a deadline of its own.
pub(crate) async fn within<T>(timeout: Duration, answer: impl Future<Output = kube::Result<T>>) -> Result<T> {
    api_call_within(timeout, answer).await.map_err(|error| match error {
        // Callers look for it.
        ApiCallError::Failed(error) => Error::new(*error),
        none @ ApiCallError::TimedOut(_) => Error::new(none),
    })
}

/// Returns whether a request to the API server failed for a reason that passes: it could not be reached, did not answer, was
/// too busy, or had an error of its own. A write may have been done all the same.
pub(crate) fn is_transient(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => true,
        Some(_) => false,
        None => error.is::<ApiCallError>(),
    }
}

/// Returns whether the API server does not have the object, or the kind.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    has_code(error, 404)
}

/// Returns whether the user may not do it.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    has_code(error, 403)
}

/// Returns whether the object was changed by somebody else before the write.
pub(crate) fn is_conflict(error: &anyhow::Error) -> bool {
    has_code(error, 409)
}

fn has_code(error: &anyhow::Error, code: u16) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == code)
}

/// Returns whether the API server denies a watch, so that the error stays the same if the watch begins again.
pub(crate) fn is_denied_watch(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Returns whether the next page of a list is not available any more: the API server keeps it for some minutes.
pub(crate) fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

/// Lists all objects, page by page. Each page has the deadline of a request. Begins again if a page is not available any
/// more.
pub(crate) async fn list_all<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let first = params.limit(PAGE);
    let mut params = first.clone();
    let mut all = Vec::new();
    let mut restarts = 0;
    loop {
        let page = match with_timeout(api.list(&params)).await {
            Err(error)
                if params.continue_token.is_some()
                    && restarts < RESTARTS
                    && error.downcast_ref().is_some_and(is_expired) =>
            {
                restarts += 1;
                params = first.clone();
                all.clear();
                continue;
            }
            page => page?,
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::StatusCode;
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::json;

    use super::*;
    use crate::api_server;

    /// Lists pods a and b, each on a page of its own. The second page is not available for the first `expired` times.
    async fn listed(expired: usize) -> Result<Vec<String>> {
        let asked = AtomicUsize::new(0);
        let client = api_server::client(move |request| {
            let page = |name: &str, token: &str| {
                let items = json!([{"metadata": {"name": name}}]);
                Some(json_answer(
                    &json!({"kind": "PodList", "metadata": {"continue": token}, "items": items}),
                ))
            };
            if !request.uri().query().unwrap_or_default().contains("continue=") {
                return page("a", "next");
            }
            match asked.fetch_add(1, Ordering::Relaxed) {
                asked if asked < expired => Some(failure(StatusCode::GONE, "Expired")),
                _ => page("b", ""),
            }
        });
        let pods = list_all(&Api::<Pod>::all(client), ListParams::default()).await?;
        Ok(pods.iter().map(ResourceExt::name_any).collect())
    }

    #[tokio::test]
    async fn a_list_whose_next_page_has_expired_begins_again() {
        assert_eq!(listed(2).await.unwrap(), ["a", "b"]);
        assert!(listed(RESTARTS + 1).await.is_err());
    }
}
