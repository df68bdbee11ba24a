//! The mutating webhook as a service, without sockets: what it answers to whom, and that it always answers.
// The helpers of tests are tests, too.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod answers;
mod fuzz;
mod reviews;
mod watches;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use mutating_webhook::{Consumers, Mutating};
use podward_core::ReviewPolicy;
use podward_runtime::admission::{AdmissionMetrics, AdmissionService, Limits};

/// The service, strict or not, in a cluster without hooks.
fn service(strict: bool) -> AdmissionService {
    service_with(strict, Consumers::default())
}

fn service_with(strict: bool, consumers: Consumers) -> AdmissionService {
    let trusted = vec!["system:serviceaccount:podward-system:lifecycle-controller".to_owned()];
    AdmissionService::new(
        Mutating::new(ReviewPolicy { strict, trusted }, consumers),
        AdmissionMetrics::default(),
        Limits { body: 100_000, ..Limits::default() },
    )
}

/// The answer to a request.
async fn ask(service: &AdmissionService, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let response = service.handle(request).await;
    (response.status(), response.into_body().collect().await.unwrap().to_bytes())
}

/// A review, as the API server sends it.
fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header("content-type", "application/json").body(Full::new(body.into())).unwrap()
}
