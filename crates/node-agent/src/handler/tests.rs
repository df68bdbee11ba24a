//! Calls to the handler, with a stand-in API server that knows three tokens.

use std::convert::Infallible;
use std::path::Path;

use http_body_util::BodyExt as _;
use kube::client::Body;
use podward_proto::v1::KubeProxyPage;
use serde_json::{Value, json};
use tonic::Code;

use super::*;

const TRAFFIC_CONTROLLER: &str = "system:serviceaccount:podward-system:traffic-controller";
const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

/// Answers TokenReviews.
async fn api_server(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let (user, audience) = match review["spec"]["token"].as_str() {
        Some("traffic-controller") => (TRAFFIC_CONTROLLER, AUDIENCE),
        Some("other-user") => ("system:serviceaccount:shop:default", AUDIENCE),
        Some("other-audience") => (TRAFFIC_CONTROLLER, "podward"),
        token => panic!("an unexpected token: {token:?}"),
    };
    let is_for_us = review["spec"]["audiences"].as_array().unwrap().contains(&json!(audience));
    review["status"] = match is_for_us {
        true => json!({"authenticated": true, "user": {"username": user}, "audiences": [audience]}),
        false => json!({"authenticated": false}),
    };
    Ok(http::Response::new(Body::from(review.to_string().into_bytes())))
}

fn handler(proc: &Path, kube_proxy: std::net::SocketAddr) -> AgentHandler {
    let client = kube::Client::new(tower::service_fn(api_server), "default");
    AgentHandler {
        proc: proc.to_owned(),
        kube_proxy: KubeProxy::new(kube_proxy),
        authenticator: Arc::new(Authenticator::only_for(client, AUDIENCE.to_owned())),
        allowed_user: TRAFFIC_CONTROLLER.to_owned(),
    }
}

fn request<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn question(uid: &str, timeout: i64) -> AwaitQuietRequest {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    AwaitQuietRequest {
        pod_uid: uid.to_owned(),
        quiet: seconds(2),
        timeout: seconds(timeout),
        ports: vec![8080],
    }
}

/// Nobody listens there.
fn nobody() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn only_the_traffic_controller_may_call() {
    let proc = tempfile::tempdir().unwrap();
    let handler = handler(proc.path(), nobody());
    for (token, code) in [
        (None, Code::Unauthenticated),
        (Some("other-audience"), Code::Unauthenticated),
        (Some("other-user"), Code::PermissionDenied),
    ] {
        let asked = handler.await_quiet(request(question(UID, 1), token)).await;
        assert_eq!(asked.unwrap_err().code(), code, "{token:?}");
        let page = ReadKubeProxyRequest { page: KubeProxyPage::Metrics.into() };
        let asked = handler.read_kube_proxy(request(page, token)).await;
        assert_eq!(asked.unwrap_err().code(), code, "{token:?}");
    }
}

#[tokio::test]
async fn a_question_that_has_no_answer_is_an_error() {
    let proc = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(proc.path().join("self/ns")).unwrap();
    std::fs::write(proc.path().join("self/ns/net"), "").unwrap();
    let handler = handler(proc.path(), nobody());
    let code = async |question| {
        handler.await_quiet(request(question, Some("traffic-controller"))).await.unwrap_err().code()
    };
    assert_eq!(code(question("../../1", 1)).await, Code::InvalidArgument);
    assert_eq!(code(question(UID, 11)).await, Code::InvalidArgument);
    assert_eq!(code(question(UID, -1)).await, Code::InvalidArgument);
    assert_eq!(code(AwaitQuietRequest { quiet: None, ..question(UID, 1) }).await, Code::InvalidArgument);
    let port = AwaitQuietRequest { ports: vec![65_536], ..question(UID, 1) };
    assert_eq!(code(port).await, Code::InvalidArgument);
    assert_eq!(code(question(UID, 1)).await, Code::NotFound);
    drop(proc);
    assert_eq!(code(question(UID, 1)).await, Code::Unavailable, "the processes of the node cannot be read");
}

#[tokio::test]
async fn an_unknown_page_is_refused_and_a_kube_proxy_that_is_down_is_an_error() {
    let proc = tempfile::tempdir().unwrap();
    let handler = handler(proc.path(), nobody());
    for (page, code) in [
        (0, Code::InvalidArgument),
        (77, Code::InvalidArgument),
        (KubeProxyPage::Metrics.into(), Code::Unavailable),
    ] {
        let asked = request(ReadKubeProxyRequest { page }, Some("traffic-controller"));
        assert_eq!(handler.read_kube_proxy(asked).await.unwrap_err().code(), code, "{page}");
    }
}
