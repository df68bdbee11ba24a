//! Servers that answer every call alike, or by its path.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// Starts a server that answers every request with a status and a body, which may be packed. Returns its URL.
pub(super) async fn serve_http(status: u16, body: Bytes, is_packed: bool) -> Result<String> {
    serve(move |_| {
        let mut response = Response::builder().status(status);
        if is_packed {
            response = response.header(CONTENT_ENCODING, "gzip");
        }
        response.body(Full::new(body.clone()))
    })
    .await
}

/// Starts a server that answers each path and query with the body that `answer` returns. Returns its URL.
pub(super) async fn serve_paths(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> Result<String> {
    serve(move |uri| Response::builder().body(Full::from(answer(&uri.to_string())))).await
}

async fn serve(
    answer: impl Fn(&Uri) -> hyper::http::Result<Response<Full<Bytes>>> + Clone + Send + 'static,
) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.uri());
        async move { response }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer.clone()));
        }
    });
    Ok(url)
}

/// Starts a server that answers every gRPC call with the message that `next` returns, and then with this status. Returns
/// `host:port`.
pub(super) async fn serve_grpc(
    next: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    status: &'static str,
    text: &'static str,
) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let next = Arc::new(next);
    let answer = service_fn(move |_: Request<Incoming>| {
        let message = next();
        let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
        let framed = [&[0], length.as_slice(), message.as_slice()].concat();
        let status = HeaderMap::from_iter([
            (HeaderName::from_static("grpc-status"), HeaderValue::from_static(status)),
            (HeaderName::from_static("grpc-message"), HeaderValue::from_static(text)),
        ]);
        let body =
            Full::new(Bytes::from(framed)).with_trailers(async move { Some(Ok::<_, Infallible>(status)) });
        async move { Response::builder().header(CONTENT_TYPE, "application/grpc").body(body) }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer.clone()));
        }
    });
    Ok(address)
}

/// Returns an answer of etcd to a call that reads keys, each with an empty value, and says that there are more.
pub(super) fn page(keys: &[String]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut length = bytes.len();
        let mut field = vec![number << 3 | 2];
        while length >= 128 {
            field.push(u8::try_from(length % 128).unwrap_or_default() | 128);
            length /= 128;
        }
        field.push(u8::try_from(length).unwrap_or_default());
        field.extend(bytes);
        field
    };
    let mut page: Vec<u8> = keys.iter().flat_map(|key| field(2, &field(1, key.as_bytes()))).collect();
    page.extend([3 << 3, 1]);
    page
}

/// As [`page`], and says that there are no more.
pub(super) fn last_page(keys: &[String]) -> Vec<u8> {
    let mut page = page(keys);
    page.truncate(page.len() - 2);
    page
}
