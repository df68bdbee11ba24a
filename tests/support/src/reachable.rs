//! Servers of this process's network, at the same loopback addresses in the network of Podward's services.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, ExposedServer};

/// A server that the services reach until it is dropped.
#[derive(Debug)]
pub struct ReachableServer {
    _exposed: ExposedServer,
    task: JoinHandle<()>,
}

impl ReachableServer {
    /// Makes the server at `address` reachable: `host:port`, or a URL.
    ///
    /// # Errors
    /// Fails if the address has no port, or its port cannot be opened where the services run.
    pub async fn new(cluster: &Cluster, address: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
        let authority = authority.split_once('/').map_or(authority, |(authority, _)| authority);
        let (_, port) = authority.rsplit_once(':').with_context(|| format!("{address} has no port"))?;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let socket = cluster.dir().join(format!("registry-{number}.sock"));
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let task = tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // While the server is down, the connection ends at once.
                    let Ok(mut outer) = TcpStream::connect(at).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                });
            }
        });
        let exposed = cluster.expose(at, &socket).await;
        Ok(Self { _exposed: exposed.with_context(|| format!("make {at} reachable"))?, task })
    }
}

impl Drop for ReachableServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
