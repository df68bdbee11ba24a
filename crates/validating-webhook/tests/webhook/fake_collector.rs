//! A collector of traces.

use opentelemetry_proto::tonic::trace::v1::Span;
use podward_runtime::telemetry::traces::{Spans, TraceArgs, Traces};
use podward_support::{Collected, collect_spans};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// A collector, and the task that sends spans to it.
pub(crate) struct FakeCollector {
    received: watch::Receiver<Vec<Collected>>,
    traces: Traces,
}

impl FakeCollector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (service, received) = collect_spans();
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let args = TraceArgs { otlp_endpoint: Some(url), otlp_ca: None };
        let traces = Traces::start(&args, "test", "1", &mut Registry::default()).unwrap();
        Self { received, traces }
    }

    /// Returns the sender of spans.
    pub(crate) fn spans(&self) -> Spans {
        self.traces.spans()
    }

    /// Returns all spans, in the order in which they were sent.
    pub(crate) async fn finish(self) -> Vec<Span> {
        self.traces.finish().await;
        self.received.borrow().iter().map(|collected| collected.span.clone()).collect()
    }
}
