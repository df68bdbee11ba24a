//! Tests of the mutating webhook as a service without sockets.
// A helper of a test fails as a test does.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod fuzz;
mod responses;
mod reviews;
mod watches;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use mutating_webhook::{ConsumerHooks, MutatingWebhook};
use podward_core::ReviewPolicy;
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService};

/// Returns the service, strict or not, in a cluster without hooks.
fn service(strict: bool) -> AdmissionService {
    service_with(strict, ConsumerHooks::default())
}

fn service_with(strict: bool, consumers: ConsumerHooks) -> AdmissionService {
    let trusted = vec!["system:serviceaccount:podward-system:lifecycle-controller".to_owned()];
    AdmissionService::new(
        MutatingWebhook::new(ReviewPolicy { strict, trusted }, consumers),
        AdmissionMetrics::default(),
        AdmissionLimits { body_bytes: 100_000, ..AdmissionLimits::default() },
    )
}

/// Sends a request. Returns the status and the body of the response.
async fn send(service: &AdmissionService, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let response = service.handle(request).await;
    (response.status(), response.into_body().collect().await.unwrap().to_bytes())
}

/// Returns a request with a review, as the API server sends it.
fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header("content-type", "application/json").body(Full::new(body.into())).unwrap()
}
