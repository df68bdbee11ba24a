//! Reviews whose bodies could not be read: the metrics tell them from invalid reviews.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::{Request, StatusCode};
use podward_runtime::admission::{AdmissionLimits, AdmissionMetrics, AdmissionService};
use podward_runtime::budget::ByteBudget;
use podward_support::metrics_text;
use prometheus_client::registry::Registry;

use crate::rotation::AllowAll;

/// The end of a body after its first bytes.
#[derive(Clone, Copy, Debug)]
enum BodyEnd {
    Complete,
    BreaksOff,
    Stalls,
}

/// Sends a body to a service within `budget` bytes. Returns the status and the outcome that was counted.
async fn outcome_of(sent: &'static str, end: BodyEnd, budget: usize) -> (StatusCode, String) {
    let (metrics, mut registry) = (AdmissionMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let limits = AdmissionLimits { body_timeout: Duration::from_millis(50), ..AdmissionLimits::default() };
    let service = AdmissionService::new(AllowAll, metrics, limits).within(ByteBudget::new(budget));
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(sent.as_bytes())))]);
    let rest = match end {
        BodyEnd::Complete => stream::empty().boxed(),
        BodyEnd::BreaksOff => stream::iter([Err("reset by peer")]).boxed(),
        BodyEnd::Stalls => stream::pending().boxed(),
    };
    let request = Request::post("/allow").header("content-type", "application/json");
    let answer = service.handle(request.body(StreamBody::new(first.chain(rest))).unwrap()).await;
    let text = metrics_text(&registry);
    let counted = text.lines().find(|line| line.starts_with("admission_requests_total{")).unwrap();
    let outcome = counted.split_once("outcome=\"").unwrap().1.split_once('"').unwrap().0;
    (answer.status(), outcome.to_owned())
}

#[tokio::test]
async fn a_body_that_was_not_read_is_not_invalid() {
    for (sent, end, budget, status, outcome) in [
        ("{}", BodyEnd::Complete, 2, StatusCode::BAD_REQUEST, "invalid"),
        ("{}", BodyEnd::Complete, 1, StatusCode::TOO_MANY_REQUESTS, "unread"),
        ("{", BodyEnd::Stalls, 2, StatusCode::REQUEST_TIMEOUT, "unread"),
        ("{", BodyEnd::BreaksOff, 2, StatusCode::BAD_REQUEST, "unread"),
    ] {
        let found = outcome_of(sent, end, budget).await;
        assert_eq!(found, (status, outcome.to_owned()), "{sent}, {end:?}, a budget of {budget} bytes");
    }
}
