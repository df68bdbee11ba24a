//! A collector of traces in the test's process. Podward's services can reach it.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use podward_support::{Cluster, Collected, ExposedServer, collect_spans};
use tokio::{net::UnixListener, sync::watch, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// Stores every span that it receives.
#[derive(Debug)]
pub struct Collector {
    at: SocketAddr,
    spans: watch::Receiver<Vec<Collected>>,
    server: JoinHandle<()>,
    _port: ExposedServer,
}

impl Collector {
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let at = cluster.free_address().await?;
        let socket = cluster.dir().join("collector.sock");
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let (service, spans) = collect_spans();
        let server =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
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
