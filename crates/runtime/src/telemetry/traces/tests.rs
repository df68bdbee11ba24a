use std::net::SocketAddr;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use podward_core::UnixNanos;
use podward_core::trace::{SpanId, root_of, trace_of};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::*;

/// No test waits for longer: it has failed then.
const PATIENCE: Duration = Duration::from_secs(60);
/// A time that never comes in a test.
const NEVER: Duration = Duration::from_secs(3600);

/// What a collector does with a request.
#[derive(Clone, Copy)]
enum Manner {
    Takes,
    Refuses,
    Hangs,
}

struct Collector {
    manner: Manner,
    requests: mpsc::UnboundedSender<ExportTraceServiceRequest>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        drop(self.requests.send(request.into_inner()));
        match self.manner {
            Manner::Takes => Ok(Response::new(ExportTraceServiceResponse::default())),
            Manner::Refuses => Err(Status::invalid_argument("not like this")),
            Manner::Hangs => std::future::pending().await,
        }
    }
}

/// A collector, with TLS if there is a key for it, and what it gets.
async fn collector(
    manner: Manner,
    tls: Option<ServerTlsConfig>,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let (requests, got) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    let service = TraceServiceServer::new(Collector { manner, requests });
    let serve = server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(async move { serve.await.unwrap() });
    (at, got)
}

/// Sending to `url`, and its metrics.
fn start(url: &str, ca: Option<PathBuf>, limits: Limits) -> (Traces, Registry) {
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

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// Waits until the metrics say so.
async fn until(registry: &Registry, line: &str) {
    let wait = async {
        while !text(registry).lines().any(|found| found == line) {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{line}: {}", text(registry));
}

#[tokio::test]
async fn a_span_arrives_as_it_was_told() {
    let (at, mut got) = collector(Manner::Takes, None).await;
    let (traces, registry) = start(&format!("http://{at}"), None, LIMITS);
    traces.spans().send(span("one"));
    let request = got.recv().await.unwrap();
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
    let (at, mut got) = collector(Manner::Takes, None).await;
    // So many requests that some are still to be made when the end comes.
    let (traces, _) = start(&format!("http://{at}"), None, Limits { batch: 3, flush: PATIENCE, ..LIMITS });
    let spans = traces.spans();
    (0..100).for_each(|_| spans.send(span("one")));
    traces.finish().await;
    let mut count = 0;
    while let Ok(request) = got.try_recv() {
        count += request.resource_spans[0].scope_spans[0].spans.len();
    }
    assert_eq!(count, 100);
    spans.send(span("too late"));
}

#[tokio::test]
async fn a_collector_that_hangs_holds_up_nobody() {
    let (at, mut got) = collector(Manner::Hangs, None).await;
    let limits = Limits { queue: 5, deadline: NEVER, flush: Duration::from_millis(50), ..LIMITS };
    let (traces, registry) = start(&format!("http://{at}"), None, limits);
    let spans = traces.spans();
    spans.send(span("first"));
    got.recv().await.unwrap();
    // That one is under way; five more find room.
    (0..9).for_each(|_| spans.send(span("more")));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="full"} 4"#).await;
    let began = Instant::now();
    traces.finish().await;
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn a_request_without_an_answer_is_given_up() {
    let (at, _got) = collector(Manner::Hangs, None).await;
    let limits = Limits { deadline: Duration::from_millis(50), ..LIMITS };
    let (traces, registry) = start(&format!("http://{at}"), None, limits);
    traces.spans().send(span("one"));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
    traces.finish().await;
}

#[tokio::test]
async fn spans_that_are_refused_or_reach_nobody_are_counted() {
    let (refusing, _got) = collector(Manner::Refuses, None).await;
    // Nobody listens there: the port is free again.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for at in [refusing, nobody] {
        let limits = Limits { deadline: Duration::from_secs(1), ..LIMITS };
        let (traces, registry) = start(&format!("http://{at}"), None, limits);
        traces.spans().send(span("one"));
        until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
        traces.finish().await;
    }
}

#[tokio::test]
async fn a_collector_with_tls_is_believed_by_its_authority() {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, &cert).unwrap();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&cert, private));
    let (at, mut got) = collector(Manner::Takes, Some(tls)).await;
    let (traces, _) = start(&format!("https://{at}"), Some(ca.clone()), LIMITS);
    traces.spans().send(span("one"));
    assert_eq!(got.recv().await.unwrap().resource_spans.len(), 1);

    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&ca, other.cert.pem()).unwrap();
    let limits = Limits { deadline: Duration::from_secs(1), ..LIMITS };
    let (traces, registry) = start(&format!("https://{at}"), Some(ca), limits);
    traces.spans().send(span("one"));
    until(&registry, r#"podward_trace_spans_dropped_total{reason="failed"} 1"#).await;
    assert!(got.try_recv().is_err());
}

#[tokio::test]
async fn what_is_no_collector_is_said_at_the_start() {
    for (url, ca, words) in [
        ("collector:4317", None, "neither http nor https"),
        ("", None, "write for example"),
        ("https://collector", None, "it has no port"),
        ("http://collector:4317", Some("ca.pem"), "only with https"),
    ] {
        let mut registry = Registry::default();
        let started = Traces::to(url, ca.map(PathBuf::from), "s", "1", &mut registry, LIMITS);
        let error = started.unwrap_err().to_string();
        assert!(error.contains(words), "{url}: {error}");
    }
}

#[test]
fn there_are_no_traces_unless_they_are_asked_for() {
    let mut registry = Registry::default();
    let none = TraceArgs { otlp_endpoint: Some(String::new()), otlp_ca: None };
    for args in [TraceArgs::default(), none] {
        let traces = Traces::start(&args, "s", "1", &mut registry).unwrap();
        assert!(!traces.spans().are_wanted());
    }
    assert_eq!(text(&registry), "# EOF\n");
    let slash = TraceArgs { otlp_endpoint: Some("http://c:4317/".to_owned()), otlp_ca: None };
    assert_eq!(slash.endpoint().as_deref(), Some("http://c:4317"));
}
