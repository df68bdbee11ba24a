//! Requests of others, and servers that answer wrongly.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Sends a request, and returns the body of a successful response.
async fn send(method: Method, url: &str, body: String) -> Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body))?;
    let response = client.request(request).await.with_context(|| format!("send a request to {url}"))?;
    let status = response.status();
    let body = response.into_body().collect().await.context("read the response")?.to_bytes();
    let body = String::from_utf8_lossy(&body).trim().to_owned();
    ensure!(status.is_success(), "{url}: {status}: {body}");
    Ok(body)
}

pub(crate) async fn get(url: &str) -> Result<String> {
    send(Method::GET, url, String::new()).await
}

pub(crate) async fn put(url: &str, body: &serde_json::Value) -> Result<String> {
    send(Method::PUT, url, body.to_string()).await
}

pub(crate) async fn post(url: &str, body: &serde_json::Value) -> Result<String> {
    send(Method::POST, url, body.to_string()).await
}

pub(crate) async fn delete(url: &str) -> Result<String> {
    send(Method::DELETE, url, String::new()).await
}

/// Starts a server that answers every request with `response` and closes the connection. Returns its URL.
pub(crate) async fn serve_always(response: &'static str) -> Result<String> {
    Ok(serve_recorded(response).await?.0)
}

/// The methods and paths of requests, without queries.
pub(crate) type Requests = Arc<Mutex<Vec<String>>>;

/// As [`serve_always`]. Also returns the requests so far.
pub(crate) async fn serve_recorded(response: &'static str) -> Result<(String, Requests)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            if let Ok(length) = stream.read(&mut request).await {
                let text = String::from_utf8_lossy(&request[..length]);
                let words: Vec<&str> = text.split([' ', '?']).take(2).collect();
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(words.join(" "));
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    });
    Ok((url, requests))
}

/// Starts a server that answers every gRPC call with an empty message. Returns `host:port`.
pub(crate) async fn serve_empty_grpc() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let answer = service_fn(|_: Request<hyper::body::Incoming>| async {
        let status = HeaderMap::from_iter([(
            hyper::header::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        // Not compressed, and of no bytes.
        let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async move { Some(Ok(status)) });
        Response::builder().header(CONTENT_TYPE, "application/grpc").body(body)
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}
