//! A collector of traces in the test's process. Podward's services can reach it.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use podward_support::{Cluster, ExposedServer};
use tokio::{net::UnixListener, sync::watch, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

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
pub struct Collector {
    at: SocketAddr,
    spans: watch::Receiver<Vec<Collected>>,
    server: JoinHandle<()>,
    _port: ExposedServer,
}

struct SpanStore(watch::Sender<Vec<Collected>>);

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

impl Collector {
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let at = cluster.free_address().await?;
        let socket = cluster.dir().join("collector.sock");
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let (keeper, spans) = watch::channel(Vec::new());
        let server = Server::builder()
            .add_service(TraceServiceServer::new(SpanStore(keeper)))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { drop(server.await) });
        let port = cluster.expose(at, &socket).await?;
        Ok(Self { at, spans, server, _port: port })
    }

    /// Returns the URL for services.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Waits until `test` is true for the spans of a trace and returns them in the order of their arrival.
    ///
    /// # Errors
    /// Fails if the collector has ended.
    pub async fn until(
        &self,
        trace: [u8; 16],
        test: impl Fn(&[Collected]) -> bool,
    ) -> Result<Vec<Collected>> {
        self.until_those(|kept| kept.span.trace_id == trace, test).await
    }

    /// Waits until `test` is true for the spans about the pod with this UID and returns them in the order of their arrival.
    ///
    /// # Errors
    /// Fails if the collector has ended.
    pub async fn until_of_pod(
        &self,
        uid: &str,
        test: impl Fn(&[Collected]) -> bool,
    ) -> Result<Vec<Collected>> {
        self.until_those(|kept| kept.attribute("k8s.pod.uid") == uid, test).await
    }

    async fn until_those(
        &self,
        is_one: impl Fn(&Collected) -> bool,
        test: impl Fn(&[Collected]) -> bool,
    ) -> Result<Vec<Collected>> {
        let those =
            |kept: &Vec<Collected>| -> Vec<_> { kept.iter().filter(|kept| is_one(kept)).cloned().collect() };
        let mut spans = self.spans.clone();
        let kept = spans.wait_for(|kept| test(&those(kept))).await.context("the collector has ended")?;
        Ok(those(&kept))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
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
