//! Requests to the API server.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, anyhow};
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// The deadline of a request.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// The objects in an answer to a list.
const PAGE: u32 = 500;

/// Waits for an answer of the API server with a deadline.
pub(crate) async fn with_timeout<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(API_TIMEOUT, answer).await;
    Ok(answer.map_err(|_| anyhow!("no answer from the API server within {API_TIMEOUT:?}"))??)
}

/// Returns whether the API server does not have the object, or the kind.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// Lists all objects, page by page. Each page has the deadline of a request.
pub(crate) async fn list_all<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = with_timeout(api.list(&params)).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}
