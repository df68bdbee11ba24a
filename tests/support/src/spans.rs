//! The service of a collector of traces, which stores all spans.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// A span and its service.
#[derive(Clone, Debug)]
pub struct Collected {
    /// `service.name`.
    pub service: String,
    /// The span.
    pub span: Span,
}

impl Collected {
    /// Returns the text of an attribute, or an empty string if the span does not have it.
    #[must_use]
    pub fn attribute(&self, key: &str) -> &str {
        text(&self.span.attributes, key)
    }
}

/// Stores every span that it receives.
#[derive(Debug)]
pub struct SpanStore(watch::Sender<Vec<Collected>>);

/// Returns the service of a collector, and the spans that it has received, in the order of their arrival.
#[must_use]
pub fn collect_spans() -> (TraceServiceServer<SpanStore>, watch::Receiver<Vec<Collected>>) {
    let (store, spans) = watch::channel(Vec::new());
    (TraceServiceServer::new(SpanStore(store)), spans)
}

#[tonic::async_trait]
impl TraceService for SpanStore {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send_modify(|kept| {
            for of_service in request.into_inner().resource_spans {
                let attributes = of_service.resource.map(|resource| resource.attributes).unwrap_or_default();
                let service = text(&attributes, "service.name").to_owned();
                let spans = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
                kept.extend(spans.map(|span| Collected { service: service.clone(), span }));
            }
        });
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    let value =
        attributes.iter().find(|attribute| attribute.key == key).and_then(|found| found.value.as_ref());
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        _ => "",
    }
}
