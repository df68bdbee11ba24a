use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use podward_core::UnixNanos;
use podward_core::trace::{SpanId, root_of, trace_of};
use podward_support::metrics_text;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::*;

/// A test that waits longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// The reaction of a collector to a request.
#[derive(Clone, Copy)]
enum CollectorMode {
    Accepts,
    Refuses,
    Hangs,
}

struct Collector {
    mode: CollectorMode,
    requests: mpsc::UnboundedSender<ExportTraceServiceRequest>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        drop(self.requests.send(request.into_inner()));
        match self.mode {
            CollectorMode::Accepts => Ok(Response::new(ExportTraceServiceResponse::default())),
            CollectorMode::Refuses => Err(Status::invalid_argument("not like this")),
            CollectorMode::Hangs => std::future::pending().await,
        }
    }
}

/// Starts a collector, with TLS if `tls` is given. Returns its address and the requests that it receives.
async fn collector(
    mode: CollectorMode,
    tls: Option<ServerTlsConfig>,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), serve(listener, mode, tls))
}

/// Serves the connections of `listener` as a collector. Returns the requests that it receives.
fn serve(
    listener: TcpListener,
    mode: CollectorMode,
    tls: Option<ServerTlsConfig>,
) -> mpsc::UnboundedReceiver<ExportTraceServiceRequest> {
    let (requests, received) = mpsc::unbounded_channel();
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    let service = TraceServiceServer::new(Collector { mode, requests });
    let serve = server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(async move { serve.await.unwrap() });
    received
}

/// Starts to send to `url`. Returns the metrics too.
fn start(url: &str, ca: Option<PathBuf>, limits: TraceLimits) -> (Traces, Registry) {
    let mut registry = Registry::with_prefix("podward");
    let traces = Traces::to(url, ca, "service", "1.2.3", &mut registry, limits).unwrap();
    (traces, registry)
}

fn span(name: &'static str) -> NewSpan {
    NewSpan {
        trace: trace_of("u", "a"),
        id: root_of("u", "a", "1"),
        parent: Some(SpanId([7; 8])),
        kind: SpanKind::Client,
        name: name.into(),
        start: UnixNanos(10),
        end: UnixNanos(20),
        attributes: vec![KeyValue::new("key", "value")],
        events: vec![("done", UnixNanos(15), vec![KeyValue::new("hook", "lb")])],
        links: vec![(trace_of("u", "b"), SpanId([9; 8]))],
        error: Some("no".to_owned()),
    }
}

/// Waits until `line` is among the metrics.
async fn until(registry: &Registry, line: &str) {
    let wait = async {
        while !metrics_text(registry).lines().any(|found| found == line) {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "{line}: {}", metrics_text(registry));
}

#[tokio::test]
async fn a_span_arrives_as_it_was_sent() {
    let (at, mut received) = collector(CollectorMode::Accepts, None).await;
    let (traces, registry) = start(&format!("http://{at}"), None, TraceLimits::DEFAULT);
    traces.spans().send(span("one"));
    let request = received.recv().await.unwrap();
    let of_service = &request.resource_spans[0];
    let about = format!("{:?}", of_service.resource);
    assert!(about.contains(r#"StringValue("service")"#) && about.contains("1.2.3"), "{about}");
    let span = &of_service.scope_spans[0].spans[0];
    assert_eq!((span.name.as_str(), span.trace_id.as_slice()), ("one", &trace_of("u", "a").0[..]));
    assert_eq!(span.span_id, root_of("u", "a", "1").0);
    assert_eq!((span.parent_span_id.as_slice(), span.flags & 1), (&[7_u8; 8][..], 1));
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (10, 20));
    assert_eq!((span.events[0].name.as_str(), span.events[0].time_unix_nano), ("done", 15));
    assert_eq!(span.links[0].trace_id, trace_of("u", "b").0);
    assert_eq!(span.status.as_ref().unwrap().message, "no");
    until(&registry, "podward_trace_spans_sent_total 1").await;
}

#[tokio::test]
async fn the_last_spans_are_sent_before_the_end() {
    let (at, mut received) = collector(CollectorMode::Accepts, None).await;
    // Some of the requests are still to be made when the task ends.
    let (traces, _) = start(
        &format!("http://{at}"),
        None,
        TraceLimits { batch: 3, flush_timeout: TIMEOUT, ..TraceLimits::DEFAULT },
    );
    let spans = traces.spans();
    (0..100).for_each(|_| spans.send(span("one")));
    traces.finish().await;
    let mut count = 0;
    while let Ok(request) = received.try_recv() {
        count += request.resource_spans[0].scope_spans[0].spans.len();
    }
    assert_eq!(count, 100);
    spans.send(span("too late"));
}

#[tokio::test]
async fn a_collector_that_hangs_delays_no_one() {
    let (at, mut received) = collector(CollectorMode::Hangs, None).await;
    let limits = TraceLimits {
        queue: 5,
        request_timeout: NEVER,
        flush_timeout: Duration::from_millis(50),
        ..TraceLimits::DEFAULT
    };
    let (traces, registry) = start(&format!("http://{at}"), None, limits);
    let spans = traces.spans();
    spans.send(span("first"));
    received.recv().await.unwrap();
    // That one is being sent; five more fit into the queue.
    (0..9).for_each(|_| spans.send(span("more")));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="full"} 4"#).await;
    let began = Instant::now();
    traces.finish().await;
    assert!(began.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn a_request_without_an_answer_is_given_up() {
    let (at, _received) = collector(CollectorMode::Hangs, None).await;
    let limits = TraceLimits { request_timeout: Duration::from_millis(50), ..TraceLimits::DEFAULT };
    let (traces, registry) = start(&format!("http://{at}"), None, limits);
    traces.spans().send(span("one"));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
    traces.finish().await;
}

/// Its node has vanished: no packet closes the connection.
#[tokio::test]
async fn a_connection_without_a_sign_of_life_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = TraceLimits {
        request_timeout: Duration::from_millis(500),
        keep_alive_interval: Duration::from_millis(50),
        keep_alive_timeout: Duration::from_millis(50),
        ..TraceLimits::DEFAULT
    };
    let (traces, _) = start(&format!("http://{}", listener.local_addr().unwrap()), None, limits);
    traces.spans().send(span("lost"));
    let _silent = listener.accept().await.unwrap();
    let mut received = serve(listener, CollectorMode::Accepts, None);
    let arrives = async {
        loop {
            traces.spans().send(span("later"));
            let wait = tokio::time::timeout(Duration::from_millis(100), received.recv());
            if wait.await.is_ok() {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, arrives).await.is_ok(), "the connection is not replaced");
}

#[tokio::test]
async fn spans_that_are_refused_or_not_delivered_are_counted() {
    let (refusing, _received) = collector(CollectorMode::Refuses, None).await;
    // The port is free again, so nothing listens there.
    let down = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for at in [refusing, down] {
        let limits = TraceLimits { request_timeout: Duration::from_secs(1), ..TraceLimits::DEFAULT };
        let (traces, registry) = start(&format!("http://{at}"), None, limits);
        traces.spans().send(span("one"));
        until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
        traces.finish().await;
    }
}

#[tokio::test]
async fn a_collector_with_tls_is_checked_against_its_authority() {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, &cert).unwrap();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&cert, private));
    let (at, mut received) = collector(CollectorMode::Accepts, Some(tls)).await;
    let (traces, _) = start(&format!("https://{at}"), Some(ca.clone()), TraceLimits::DEFAULT);
    traces.spans().send(span("one"));
    assert_eq!(received.recv().await.unwrap().resource_spans.len(), 1);

    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&ca, other.cert.pem()).unwrap();
    let limits = TraceLimits { request_timeout: Duration::from_secs(1), ..TraceLimits::DEFAULT };
    let (traces, registry) = start(&format!("https://{at}"), Some(ca), limits);
    traces.spans().send(span("one"));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
    assert!(received.try_recv().is_err());
}

#[tokio::test]
async fn an_invalid_collector_is_an_error_at_the_start() {
    for (url, ca, words) in [
        ("collector:4317", None, "neither http nor https"),
        ("", None, "write for example"),
        ("https://collector", None, "it has no port"),
        ("http://collector:4317", Some("ca.pem"), "only with https"),
    ] {
        let mut registry = Registry::default();
        let started = Traces::to(url, ca.map(PathBuf::from), "s", "1", &mut registry, TraceLimits::DEFAULT);
        let error = started.unwrap_err().to_string();
        assert!(error.contains(words), "{url}: {error}");
    }
}

#[test]
fn there_are_no_traces_unless_configured() {
    let mut registry = Registry::default();
    let none = TraceArgs { otlp_endpoint: Some(String::new()), otlp_ca: None };
    for args in [TraceArgs::default(), none] {
        let traces = Traces::start(&args, "s", "1", &mut registry).unwrap();
        assert!(!traces.spans().are_wanted());
    }
    assert_eq!(metrics_text(&registry), "# EOF\n");
    let slash = TraceArgs { otlp_endpoint: Some("http://c:4317/".to_owned()), otlp_ca: None };
    assert_eq!(slash.endpoint().as_deref(), Some("http://c:4317"));
}
