//! Requests whose responses include the headers. Clients of Kubernetes hide warnings.

use anyhow::{Context, Result};
use hyper::{Request, StatusCode, http::request::Builder};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, client::Body};
use serde_json::Value;

/// A response of the API server.
#[derive(Clone, Debug)]
pub struct RawResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The texts of its warnings (RFC 7234, 5.5, as Kubernetes writes them: `299 - "TEXT"`).
    pub warnings: Vec<String>,
    /// The body.
    pub body: Value,
}

impl RawResponse {
    /// Returns the message of an error response.
    #[must_use]
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Returns whether a warning contains `text`.
    #[must_use]
    pub fn warns_of(&self, text: &str) -> bool {
        self.warnings.iter().any(|warning| warning.contains(text))
    }
}

/// Sends a JSON merge patch of a pod.
///
/// # Errors
/// Fails if there is no response. An error response is a response.
pub async fn raw_patch(client: &Client, namespace: &str, pod: &str, patch: &Value) -> Result<RawResponse> {
    let url = format!("{}/{pod}", Pod::url_path(&(), Some(namespace)));
    send(client, Request::patch(url).header("content-type", "application/merge-patch+json"), patch).await
}

/// Sends a strategic merge patch of the status of a pod, with the metadata in it, as `user` of `groups`.
///
/// # Errors
/// Fails if there is no response. An error response is a response.
pub async fn raw_status_patch(
    client: &Client,
    namespace: &str,
    pod: &str,
    (user, groups): (&str, &[&str]),
    patch: &Value,
) -> Result<RawResponse> {
    let url = format!("{}/{pod}/status", Pod::url_path(&(), Some(namespace)));
    let request = Request::patch(url).header("content-type", "application/strategic-merge-patch+json");
    let request = request.header("impersonate-user", user);
    let request = groups.iter().fold(request, |request, group| request.header("impersonate-group", *group));
    send(client, request, patch).await
}

async fn send(client: &Client, request: Builder, patch: &Value) -> Result<RawResponse> {
    let request =
        request.header("accept", "application/json").body(Body::from(serde_json::to_vec(patch)?))?;
    let what = request.uri().path().to_owned();
    let response = client.send(request).await.with_context(|| format!("patch {what}"))?;
    let status = response.status();
    let warnings = response.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let warnings =
        warnings.map(|value| value.trim_start_matches("299 - ").trim_matches('"').to_owned()).collect();
    let body = response.into_body().collect_bytes().await.context("read the answer")?;
    Ok(RawResponse {
        status,
        warnings,
        body: serde_json::from_slice(&body).context("understand the answer")?,
    })
}
