//! A proxy between Podward and a registry that causes faults.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to requests on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// They do not arrive until the fault ends. Connections stay open.
    Stalled,
    /// They arrive later.
    Slow(Duration),
    /// They do not arrive, and are answered with the status 500 of HTTP.
    Answers500,
}

const ANSWER_500: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 5\r\nconnection: close\r\n\r\nsorry";

/// A proxy in front of one server. It ends with this value.
pub(super) struct FaultyProxy {
    url: String,
    fault: watch::Sender<Fault>,
    task: JoinHandle<()>,
}

impl FaultyProxy {
    /// Starts a proxy in front of the server with this URL.
    pub(super) async fn start(server: &str) -> Result<Self> {
        let (scheme, authority) = server.split_once("://").context("a URL without a scheme")?;
        let to: SocketAddr = authority.parse().with_context(|| format!("the address {authority}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the proxy")?;
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let (fault, watched) = watch::channel(Fault::None);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, to, watched.clone()));
            }
        });
        Ok(Self { url, fault, task })
    }

    /// Returns its URL.
    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Causes a fault, for present connections too, or ends it.
    pub(super) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr, mut fault: watch::Receiver<Fault>) -> io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let read = read?;
                let Ok(fault) = fault.wait_for(|fault| *fault != Fault::Stalled).await.map(|fault| *fault) else {
                    return Ok(());
                };
                match fault {
                    Fault::Answers500 if read > 0 => {
                        client.write_all(ANSWER_500).await?;
                        client.shutdown().await?;
                        // What is unread would reset the connection before the answer is read.
                        while client.read(&mut request).await? > 0 {}
                        return Ok(());
                    }
                    Fault::Slow(delay) => tokio::time::sleep(delay).await,
                    _ => {}
                }
                if read == 0 {
                    return Ok(());
                }
                server.write_all(&request[..read]).await?;
            }
            read = server.read(&mut response) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                client.write_all(&response[..read]).await?;
            }
        }
    }
}
