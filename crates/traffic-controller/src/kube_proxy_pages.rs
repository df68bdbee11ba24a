//! Reads pages of kube-proxies: directly, or by the agent of their node where only processes of the node can read them.

mod line_filter;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper::http::uri::PathAndQuery;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use podward_proto::v1::KubeProxyPage;

use crate::args::NODE_IP;
use crate::node_agent::NodeAgents;
use crate::proxy::{ProxyPage, ProxyReading, ReadFailure};

use line_filter::LineFilter;

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a read. It is longer than [`CONNECT_TIMEOUT`], to distinguish a kube-proxy that hangs from one that
/// cannot be reached.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum size of a response in bytes. On a node with 10,000 Services it has 0.2 MB.
const MAX_RESPONSE: usize = 8 << 20;
/// The size of the buffer of a connection in bytes. By default it grows to the size of a page, and there may be
/// thousands of connections.
const READ_BUFFER: usize = 16 << 10;

/// The clients for pages of kube-proxies.
pub(crate) struct KubeProxyPages {
    /// The URL of the metrics, with [`NODE_IP`].
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
    agents: Option<Arc<NodeAgents>>,
    /// How the kube-proxy of each node was last read.
    readers: Mutex<HashMap<Arc<str>, PageReader>>,
}

/// Who can read the pages of a kube-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageReader {
    /// This process.
    Directly,
    /// The agent of the node.
    ByAgent,
    /// Nobody.
    Nobody,
}

impl PageReader {
    pub(crate) const ALL: [Self; 3] = [Self::Directly, Self::ByAgent, Self::Nobody];

    /// Returns the name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Directly => "directly",
            Self::ByAgent => "by-agent",
            Self::Nobody => "not",
        }
    }
}

impl KubeProxyPages {
    /// Returns clients that read from `url`, in which `{node_ip}` is replaced by the address of the node.
    pub(crate) fn new(url: String, agents: Option<Arc<NodeAgents>>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .http1_read_buf_exact_size(READ_BUFFER)
            .build(connector);
        Self { url, client, agents, readers: Mutex::default() }
    }

    /// Returns the number of nodes whose kube-proxy was last read in each way.
    pub(crate) fn counts(&self) -> [(PageReader, usize); PageReader::ALL.len()] {
        let readers = self.readers.lock();
        PageReader::ALL.map(|reader| (reader, readers.values().filter(|last| **last == reader).count()))
    }

    /// Forgets nodes that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&Arc<str>) -> bool) {
        self.readers.lock().retain(|node, _| exists(node));
    }

    /// Reads `page` of the kube-proxy of `node`.
    pub(crate) async fn read(
        &self,
        node: &Arc<str>,
        address: Option<IpAddr>,
        page: KubeProxyPage,
    ) -> Result<ProxyPage, ReadFailure> {
        let address = address
            .ok_or_else(|| ReadFailure { why: "the node has no InternalIP".to_owned(), hangs: false })?;
        let last = self.readers.lock().get(node).copied();
        let (reader, read) = self.read_in_turn(address, page, last).await;
        self.readers.lock().insert(Arc::clone(node), reader);
        read
    }

    /// Reads directly and then by the agent, except if the agent was the last that could read.
    async fn read_in_turn(
        &self,
        address: IpAddr,
        page: KubeProxyPage,
        last: Option<PageReader>,
    ) -> (PageReader, Result<ProxyPage, ReadFailure>) {
        if let (Some(agents), Some(PageReader::ByAgent)) = (&self.agents, last) {
            let read = agents.read_kube_proxy(address, page).await;
            // After a failure, the next read tries both.
            return (if read.is_ok() { PageReader::ByAgent } else { PageReader::Nobody }, read);
        }
        let (direct, agents) = match (self.read_directly(address, page).await, &self.agents) {
            (Ok(read), _) => return (PageReader::Directly, Ok(read)),
            // It hangs for everyone.
            (Err(failure), Some(agents)) if !failure.hangs => (failure, agents),
            (Err(failure), _) => return (PageReader::Nobody, Err(failure)),
        };
        match agents.read_kube_proxy(address, page).await {
            Ok(read) => (PageReader::ByAgent, Ok(read)),
            Err(failure) => {
                let why = format!("{}; {}", direct.why, failure.why);
                (PageReader::Nobody, Err(ReadFailure { why, hangs: failure.hangs }))
            }
        }
    }

    async fn read_directly(&self, address: IpAddr, page: KubeProxyPage) -> Result<ProxyPage, ReadFailure> {
        let url = self.url_of(address, page).map_err(|why| ReadFailure { why, hangs: false })?;
        let answer = async {
            let response = self
                .client
                .get(url.clone())
                .await
                .map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
            let date =
                response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(ToOwned::to_owned);
            let status = response.status();
            let is_needed = |line: &[u8]| page != KubeProxyPage::Metrics || ProxyReading::is_needed(line);
            let mut lines = LineFilter::new(is_needed);
            let mut body = Limited::new(response.into_body(), MAX_RESPONSE);
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| format!("the response was incomplete: {error}"))?;
                frame.data_ref().into_iter().for_each(|part| lines.add(part));
            }
            let body = lines.finish().into();
            Ok(ProxyPage { is_success: status.is_success(), status: status.as_u16(), date, body })
        };
        let read = tokio::time::timeout(READ_TIMEOUT, answer).await;
        let hangs = read.is_err();
        read.unwrap_or_else(|_| Err(format!("no response within {} s", READ_TIMEOUT.as_secs())))
            .map_err(|why| ReadFailure { why: format!("{url}: {why}"), hangs })
    }

    fn url_of(&self, address: IpAddr, page: KubeProxyPage) -> Result<Uri, String> {
        let host = match address {
            IpAddr::V6(address) => format!("[{address}]"),
            IpAddr::V4(address) => address.to_string(),
        };
        let url = self.url.replace(NODE_IP, &host);
        let uri: Uri = url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))?;
        if page != KubeProxyPage::Configz {
            return Ok(uri);
        }
        let mut parts = uri.into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/configz"));
        Uri::from_parts(parts).map_err(|error| error.to_string())
    }
}
