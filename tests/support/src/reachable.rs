//! Servers of this process's network that the cluster reaches.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result};
use tokio::{
    net::{TcpStream, UnixListener},
    task::JoinHandle,
};

use crate::cluster::{Cluster, ExposedServer};

/// A server on loopback of this process's network, which is reached where services run until this is dropped.
#[derive(Debug)]
pub struct ReachableServer {
    _exposed: ExposedServer,
    relay: JoinHandle<()>,
}

impl ReachableServer {
    /// As [`new`](Self::new), at loopback.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub async fn on_loopback(cluster: &Cluster, address: &str) -> Result<Self> {
        Self::new(cluster, Ipv4Addr::LOCALHOST.into(), address).await
    }

    /// Makes the server at `address`, `127.0.0.1:<port>` or a URL with it, reachable at the same port of `ip`: processes
    /// beside the cluster reach it at loopback, pods at [`Cluster::service_address`].
    ///
    /// # Errors
    /// Fails if the address has no port, or the port cannot be opened.
    pub async fn new(cluster: &Cluster, ip: IpAddr, address: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
        let authority = authority.split_once('/').map_or(authority, |(authority, _)| authority);
        let (_, port) = authority.rsplit_once(':').with_context(|| format!("{address} has no port"))?;
        let port: u16 = port.parse().with_context(|| format!("understand the port of {address}"))?;
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let socket = cluster.dir().join(format!("server-{}-{number}.sock", std::process::id()));
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let relay = tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // While the server is down, the connection ends at once.
                    let Ok(mut outer) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                });
            }
        });
        let at = SocketAddr::new(ip, port);
        let exposed = cluster.expose(at, &socket).await;
        Ok(Self { _exposed: exposed.with_context(|| format!("make {server} reachable at {at}"))?, relay })
    }
}

impl Drop for ReachableServer {
    fn drop(&mut self) {
        self.relay.abort();
    }
}
