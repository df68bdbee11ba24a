//! The connector for HTTP and gRPC clients.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use super::{DialError, GuardedDialer};

/// Opens TCP connections for clients of hyper and tonic, through a [`GuardedDialer`]. It does not use proxies.
#[derive(Clone, Debug)]
pub struct GuardedConnector {
    dialer: GuardedDialer,
    limit: Duration,
}

impl GuardedConnector {
    /// Returns a connector. A connection that takes longer than `limit` fails.
    #[must_use]
    pub fn new(dialer: GuardedDialer, limit: Duration) -> Self {
        Self { dialer, limit }
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Self::Response, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { dialer, limit } = self.clone();
        async move {
            let host = uri.host().unwrap_or_default();
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let stream = dialer.connect(host, uri.port_u16().unwrap_or(default), limit).await?;
            // Without it, requests that are written in several parts are delayed. A failure changes nothing else.
            let _ = stream.set_nodelay(true);
            Ok(TokioIo::new(stream))
        }
        .boxed()
    }
}
