//! Relays ports of the host into the cluster.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};

use crate::{
    control::ControlClient,
    error::{During, TestClusterError},
};

/// Listens on a free loopback port and relays every connection to `to` inside the cluster.
pub(crate) async fn forward(control: ControlClient, to: SocketAddr) -> Result<SocketAddr, TestClusterError> {
    let listener = loopback().await?;
    let at = listener.local_addr().during(|| "learn the loopback port".to_owned())?;
    tokio::spawn(accept(listener, control, to));
    Ok(at)
}

async fn accept(listener: TcpListener, control: ControlClient, to: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(relay(stream, control.clone(), to))),
            // Too many open files: continue when connections have closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

/// Relays a connection. Closes it if the server inside does not accept, as the server would.
async fn relay(mut outside: TcpStream, control: ControlClient, to: SocketAddr) {
    let _ = outside.set_nodelay(true);
    if let Ok(mut inside) = control.connect(to).await {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    }
}

/// Returns a listener on a free loopback port of the host.
pub(super) async fn loopback() -> Result<TcpListener, TestClusterError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.during(|| "listen on a loopback port".to_owned())
}
