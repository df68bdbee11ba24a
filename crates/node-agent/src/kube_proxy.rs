//! Reads pages of the node's kube-proxy.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use podward_proto::v1::{KubeProxyPage, ReadKubeProxyResponse};
use tonic::Status;

/// The timeout of a connection attempt and of a response.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum size of a page in bytes.
const MAX_PAGE: usize = 8 << 20;

/// The HTTP client of kube-proxy.
pub(crate) struct KubeProxy {
    address: SocketAddr,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl KubeProxy {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(10))
            .build(connector);
        Self { address, client }
    }

    /// Reads `page`.
    ///
    /// # Errors
    /// See `NodeAgent.ReadKubeProxy` in the proto files.
    pub(crate) async fn read(&self, page: KubeProxyPage) -> Result<ReadKubeProxyResponse, Status> {
        let path = match page {
            KubeProxyPage::Metrics => "metrics",
            KubeProxyPage::Configz => "configz",
            KubeProxyPage::Unspecified => return Err(Status::invalid_argument("page must be set")),
        };
        let url = format!("http://{}/{path}", self.address);
        let fail = |why: String| Status::unavailable(format!("{url}: {why}"));
        let uri = url.parse().map_err(|error| fail(format!("invalid URL: {error}")))?;
        let answer = async {
            let response = self
                .client
                .get(uri)
                .await
                .map_err(|error| fail(format!("{:#}", anyhow::Error::from(error))))?;
            let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()).unwrap_or_default();
            let (status, date) = (response.status().as_u16().into(), date.to_owned());
            let body = Limited::new(response.into_body(), MAX_PAGE).collect().await;
            let body = body.map_err(|error| fail(format!("the response was incomplete: {error}")))?;
            Ok(ReadKubeProxyResponse { status, date, body: body.to_bytes().into() })
        };
        tokio::time::timeout(TIMEOUT, answer).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("{url}: no response within {} s", TIMEOUT.as_secs())))
        })
    }
}

#[cfg(test)]
mod tests;
