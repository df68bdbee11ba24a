//! A plain HTTP client for ports where services run.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;

use crate::cluster::Cluster;

/// Requests `path` from the server at `at`, an address where services run. Returns the status and the body.
///
/// # Errors
/// Fails if nothing listens there, or the response is not complete.
pub async fn get(cluster: &Cluster, at: SocketAddr, path: &str) -> Result<(StatusCode, String)> {
    let stream = cluster.connect(at).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("speak HTTP")?;
    let request = Request::get(path).header("host", at.to_string()).body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection transfers the bytes and ends when `exchange` drops its sender. The server may close it after its
    // response.
    let (answer, ended) = futures::future::join(exchange, connection).await;
    match (answer, ended) {
        (Ok(answer), _) => Ok(answer),
        (Err(_), Err(error)) | (Err(error), Ok(())) => {
            Err(anyhow::Error::new(error)).with_context(|| format!("speak HTTP with {at}"))
        }
    }
}
