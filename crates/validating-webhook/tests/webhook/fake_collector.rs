//! A collector of traces.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use podward_runtime::telemetry::traces::{Spans, TraceArgs, Traces};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A collector, and the task that sends spans to it.
pub(crate) struct FakeCollector {
    received: Arc<Mutex<Vec<Span>>>,
    traces: Traces,
}

struct SpanStore(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for SpanStore {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|service| service.scope_spans);
        self.0.lock().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl FakeCollector {
    pub(crate) async fn start() -> Self {
        let received = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = TraceServiceServer::new(SpanStore(Arc::clone(&received)));
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
        self.received.lock().clone()
    }
}
