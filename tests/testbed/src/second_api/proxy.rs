//! One connection of a client to the second API server.

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self as client, SendRequest},
    header::UPGRADE,
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    net::TcpStream,
    sync::{Mutex, watch},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    identity::{Failure, client_config},
    lag::delayed,
};
use crate::components::SECOND_API_BEHIND;

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// Serves a connection until it ends.
pub(super) async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    pki: PathBuf,
    lag: watch::Receiver<Duration>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let config = match client_config(&pki, shown) {
        Ok(config) => Arc::new(config),
        Err(error) => return eprintln!("a client is refused: {error}"),
    };
    let upstream = Upstream { config, sender: Mutex::new(None) };
    let service = service_fn(async |request| Ok::<_, Infallible>(answer(&upstream, &lag, request).await));
    let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn answer(upstream: &Upstream, lag: &watch::Receiver<Duration>, request: Request<Incoming>) -> Answer {
    let is_watch = is_watch(&request);
    match forward(upstream, request).await {
        Ok(response) => response.map(|body| {
            if is_watch { delayed(body, lag.clone()).boxed_unsync() } else { body.boxed_unsync() }
        }),
        Err(error) => {
            let text = format!("the second API server does not answer: {error}");
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
            let mut response = Response::new(body.boxed_unsync());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

/// Returns whether the response is a stream of changes.
fn is_watch<B>(request: &Request<B>) -> bool {
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    request.method() == Method::GET
        && parameters.any(|text| matches!(text, "watch=true" | "watch=1" | "watch"))
}

async fn forward(upstream: &Upstream, mut request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
    let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let mut response = upstream.send(request).await?;
    if let Some(upgrade) = upgrade.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS) {
        let behind = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let (one, other) = tokio::try_join!(upgrade, behind)?;
            let (mut one, mut other) = (TokioIo::new(one), TokioIo::new(other));
            tokio::io::copy_bidirectional(&mut one, &mut other).await?;
            Ok::<_, Failure>(())
        });
    }
    Ok(response)
}

/// The connection to the API server. A client sends one request at a time on its connection, so that one is enough.
struct Upstream {
    config: Arc<ClientConfig>,
    sender: Mutex<Option<SendRequest<Incoming>>>,
}

impl Upstream {
    async fn send(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
        let mut kept = self.sender.lock().await;
        let mut usable = kept.take();
        if let Some(sender) = &mut usable
            && sender.ready().await.is_err()
        {
            usable = None;
        }
        let mut sender = match usable {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await?;
        *kept = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, Failure> {
        let stream = TcpStream::connect(SECOND_API_BEHIND).await?;
        let _ = stream.set_nodelay(true);
        let name = ServerName::from(SECOND_API_BEHIND.ip());
        let stream = TlsConnector::from(self.config.clone()).connect(name, stream).await?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watches_are_delayed() {
        let get = |uri: &str| Request::get(uri).body(()).unwrap();
        assert!(is_watch(&get("/api/v1/pods?allowWatchBookmarks=true&watch=true")));
        assert!(is_watch(&get("/api/v1/pods?watch=1")));
        assert!(!is_watch(&get("/api/v1/pods?watch=false")));
        assert!(!is_watch(&get("/api/v1/pods?allowWatchBookmarks=true")));
        assert!(!is_watch(&get("/apis/example.com/v1/watch")));
    }
}
