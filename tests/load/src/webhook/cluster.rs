//! The objects that a webhook watches. They never change.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{Context, Result};
use futures::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::review::{NAMESPACE, NODE};

/// The number of nodes, and of namespaces.
const OBJECTS: usize = 500;

/// Serves the objects from memory as long as the runtime lives, and writes a kubeconfig for it.
pub(super) async fn serve(kubeconfig: &Path) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("serve a cluster")?;
    let server = format!("http://{}", listener.local_addr()?);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    std::fs::write(kubeconfig, config.to_string()).context("write a kubeconfig")?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(
                TokioIo::new(stream),
                service_fn(async |request| Ok::<_, Infallible>(answer(&request))),
            );
            tokio::spawn(connection);
        }
    });
    Ok(())
}

fn answer(
    request: &Request<Incoming>,
) -> Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>> {
    if request.uri().query().unwrap_or_default().contains("watch=true") {
        // The objects never change.
        let frames = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>().boxed();
        return Response::new(StreamBody::new(frames).boxed_unsync());
    }
    let items = match request.uri().path() {
        "/api/v1/nodes" => items(
            NODE,
            &json!({"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2025-11-20T08:15:41Z"},
            ]}),
        ),
        "/api/v1/namespaces" => items(NAMESPACE, &json!({"phase": "Active"})),
        _ => Vec::new(),
    };
    let list =
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
    let mut response = Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync());
    response
        .headers_mut()
        .insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

fn items(first: &str, status: &Value) -> Vec<Value> {
    let names = std::iter::once(first.to_owned()).chain((1..OBJECTS).map(|n| format!("other-{n}")));
    names.map(|name| json!({"metadata": {"name": name, "uid": name}, "status": status})).collect()
}
