//! Simulated kube-proxies: one process that serves their pages on all addresses of loopback. Each address is a node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use podward_support::{Cluster, ServiceCommand, ServiceProcess, WAIT, ask, within};
use tokio::net::TcpListener;

use super::page;

/// The port of kube-proxy's metrics.
const PORT: u16 = 10249;
/// The page with the number of reads of each address.
const READS: &str = "/reads";
/// The pause between two looks whether the process answers.
const START_INTERVAL: Duration = Duration::from_millis(50);
/// The nodes in each network of the last number of an address.
const NODES_IN_NETWORK: usize = 250;

/// The argument of the load generator that starts the process.
pub const COMMAND: &str = "kube-proxies";

/// The number of reads of the metrics of each kube-proxy since the start.
pub(super) type Reads = BTreeMap<IpAddr, u64>;

/// Returns the address of the node `index`.
pub(super) fn address(index: usize) -> Result<Ipv4Addr> {
    let (network, host) = (index / NODES_IN_NETWORK, index % NODES_IN_NETWORK + 1);
    Ok(Ipv4Addr::new(127, 1, u8::try_from(network).context("too many nodes")?, u8::try_from(host)?))
}

/// The process that serves the pages.
pub(super) struct KubeProxies {
    cluster: Cluster,
    _process: ServiceProcess,
}

impl KubeProxies {
    /// Starts the process where the services run, and waits until it answers.
    pub(super) async fn start(cluster: &Cluster) -> Result<Self> {
        let program = std::env::current_exe().context("find the load generator")?;
        let command = ServiceCommand { name: COMMAND.to_owned(), program, args: vec![COMMAND.to_owned()] };
        let mut process = cluster.spawn(command).await?;
        let started = async {
            while ask::get(cluster, at(), READS).await.is_err() {
                ensure!(process.is_running(), "the kube-proxies have ended: {}", process.log_tail(5));
                tokio::time::sleep(START_INTERVAL).await;
            }
            Ok(())
        };
        within(WAIT, || "the simulated kube-proxies".to_owned(), started).await?;
        Ok(Self { cluster: cluster.clone(), _process: process })
    }

    /// Returns the reads since the start.
    pub(super) async fn reads(&self) -> Result<Reads> {
        let (status, text) = ask::get(&self.cluster, at(), READS).await.context("count the reads")?;
        ensure!(status == StatusCode::OK, "the kube-proxies answer {status} for {READS}");
        serde_json::from_str(&text).context("count the reads")
    }
}

fn at() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, PORT).into()
}

/// Serves the pages until the process is killed.
///
/// # Errors
/// Fails if the port is in use.
pub async fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await;
    let listener = listener.with_context(|| format!("listen on port {PORT}"))?;
    let pages = Arc::new(Mutex::new(Pages::default()));
    let start = Instant::now();
    while let Ok((stream, _)) = listener.accept().await {
        let pages = Arc::clone(&pages);
        let address = stream.local_addr().context("find the address of a node")?.ip();
        let connection = http1::Builder::new().serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| {
                let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
                let response = pages.answer(request.uri().path(), address, start.elapsed().as_secs());
                async { Ok::<_, Infallible>(response) }
            }),
        );
        tokio::spawn(connection);
    }
    Ok(())
}

/// The metrics that are served, and the reads of them.
#[derive(Default)]
struct Pages {
    /// The number of syncs that have failed.
    failed: u64,
    metrics: Vec<Bytes>,
    reads: Reads,
}

impl Pages {
    /// Returns the page `path` of the kube-proxy at `address`. A sync fails each second.
    fn answer(
        &mut self,
        path: &str,
        address: IpAddr,
        seconds: u64,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let body = match path {
            "/metrics" => {
                if self.metrics.is_empty() || self.failed != seconds {
                    (self.failed, self.metrics) = (seconds, page::chunks(seconds));
                }
                *self.reads.entry(address).or_default() += 1;
                let chunks = self.metrics.clone().into_iter().map(|chunk| Ok(Frame::data(chunk)));
                return Response::new(StreamBody::new(futures::stream::iter(chunks)).boxed_unsync());
            }
            "/configz" => page::SETTINGS.to_owned(),
            READS => serde_json::to_string(&self.reads).unwrap_or_default(),
            _ => {
                let mut response = Response::new(Full::default().boxed_unsync());
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        };
        Response::new(Full::new(Bytes::from(body)).boxed_unsync())
    }
}
