//! The second API server of a cluster, whose watches can lag.
//!
//! It serves the same etcd as the first one. Clients reach it through a proxy, a process beside the control plane, that
//! delays the responses of watches: their clients learn of every change late, as behind an API server whose cache lags.
//! All other requests pass without delay. The proxy ends TLS, and connects to the API server with the certificate of
//! its client, whose key it finds in the folder of the PKI. It serves `lag.sock` for the delay.

mod identity;
mod lag;
mod proxy;

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    components::SECOND_API,
    error::{During, TestClusterError},
    protocol::{ControlRequest, ControlResponse, receive, send},
    state::Layout,
};

/// Runs the proxy of the cluster in `dir`.
pub(crate) fn run(dir: &Path) -> Result<(), TestClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "start the runtime of the proxy".to_owned())?;
    runtime.block_on(serve(&Layout::new(dir)))
}

async fn serve(layout: &Layout) -> Result<(), TestClusterError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pki = layout.pki();
    let config = identity::server_config(&pki)
        .map_err(|source| TestClusterError::Kubeconfig { path: pki.clone(), source })?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let socket = layout.lag_socket();
    // A proxy that was killed left it.
    let _ = std::fs::remove_file(&socket);
    let orders = UnixListener::bind(&socket).during(|| format!("listen on {}", socket.display()))?;
    let listener = TcpListener::bind(SECOND_API).await.during(|| format!("listen on {SECOND_API}"))?;
    let lag = watch::Sender::new(Duration::ZERO);
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(proxy::serve(stream, acceptor.clone(), pki.clone(), lag.subscribe()));
            },
            accepted = orders.accept() => if let Ok((stream, _)) = accepted {
                obey(stream, &lag).await;
            },
        }
    }
}

/// Answers the single request of a connection.
async fn obey(mut stream: UnixStream, lag: &watch::Sender<Duration>) {
    let answer = match receive(&mut stream).await {
        Ok(ControlRequest::Lag { milliseconds }) => {
            lag.send_replace(Duration::from_millis(milliseconds));
            ControlResponse::Done
        }
        Ok(_) => ControlResponse::Failed { message: "that is not the proxy's business".to_owned() },
        Err(_) => return,
    };
    let _ = send(&mut stream, &answer).await;
}
