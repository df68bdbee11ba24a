//! Ports of the host that lead into the bed.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use super::loopback;
use crate::{
    control::Control,
    error::{BedError, During},
};

/// Listens on a free loopback port and relays every connection to `to` inside.
pub(crate) async fn forward(control: Control, to: SocketAddr) -> Result<SocketAddr, BedError> {
    let listener = loopback().await?;
    let at = listener.local_addr().during(|| "learn the loopback port".to_owned())?;
    tokio::spawn(accept(listener, control, to));
    Ok(at)
}

async fn accept(listener: TcpListener, control: Control, to: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(relay(stream, control.clone(), to))),
            // Out of file descriptors: go on once connections have closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

/// A connection that can't be made inside is closed: to the client it is as if the server had closed it.
async fn relay(mut outside: TcpStream, control: Control, to: SocketAddr) {
    let _ = outside.set_nodelay(true);
    if let Ok(mut inside) = control.connect(to).await {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    }
}
