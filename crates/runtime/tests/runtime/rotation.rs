//! A webhook in the process of the test: readiness, rotation of its certificate under load, and stop.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, Webhook, WebhookRoute,
};
use podward_runtime::{WebhookAddresses, WebhookArgs, WebhookSetup, serve_webhook};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{PathFile, Secret, connect, http1, post, text, within};

const SOON: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    webhook: WebhookArgs,
}

pub(crate) struct AllowAll;

static ROUTES: [WebhookRoute; 1] = [WebhookRoute {
    path: "/allow",
    api: ("", "v1"),
    resources: &[("pods", "")],
    operations: &[AdmissionOperation::Create],
}];

impl Webhook for AllowAll {
    type Object = Value;

    fn routes(&self) -> &'static [WebhookRoute] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        _: &'static WebhookRoute,
        _: &'a AdmissionRequest<'a, Value>,
    ) -> AdmissionDecision<'a> {
        AdmissionResponse::allow().into()
    }
}

/// A webhook that allows everything, in the process of the test.
pub(crate) struct Running {
    pub(crate) at: WebhookAddresses,
    pub(crate) certificate: CertificateDer<'static>,
    secret: Secret,
    stop: CancellationToken,
    process: JoinHandle<()>,
}

pub(crate) async fn serve(more: &[&str]) -> Running {
    let (secret, certificate) = Secret::new();
    let (cert, key) = (secret.cert(), secret.key());
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let args = [&["test", "--bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0"][..], &files, more].concat();
    let args = Args::parse_from(args);
    let stop = CancellationToken::new();
    let (tell, told) = oneshot::channel();
    let setup = WebhookSetup::new("test", "1", stop.clone());
    let process = tokio::spawn(async move {
        serve_webhook(&args.webhook, AllowAll, setup, Some(tell)).await.unwrap();
    });
    let at = within(SOON, told).await.unwrap();
    Running { at, certificate, secret, stop, process }
}

pub(crate) async fn admin(address: SocketAddr, path: &str) -> (StatusCode, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::get(format!("http://{address}{path}")).body(Empty::new()).unwrap();
    let response = client.request(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn until_ready(address: SocketAddr) {
    within(SOON, async {
        while admin(address, "/readyz").await.0 != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_rotated_secret_is_served_without_a_restart() {
    let path = PathFile::new();
    let running = serve(&["--webhook-path-file", path.file()]).await;
    let Running { at, certificate: old, mut secret, stop, process } = running;
    until_ready(at.admin).await;
    assert_eq!(admin(at.admin, "/livez").await.0, StatusCode::OK);

    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "object": {},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        },
    });
    let mut kept = http1(connect(at.tls, &old, "http/1.1").await.unwrap()).await;
    assert_eq!(
        kept.send_request(post(&path.path("/allow"), review.to_string())).await.unwrap().status(),
        StatusCode::OK
    );

    let new = secret.rotate();
    // New connections get the new certificate after at most a second.
    within(SOON, async {
        while connect(at.tls, &new, "http/1.1").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(connect(at.tls, &old, "http/1.1").await.is_err());
    // The earlier connection still works.
    kept.ready().await.unwrap();
    let response = kept.send_request(post(&path.path("/allow"), review.to_string())).await.unwrap();
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));

    let (_, metrics) = admin(at.admin, "/metrics").await;
    for line in [
        r#"podward_tls_certificate_reloads_total{outcome="success"} 1"#,
        r#"podward_tls_certificate_reloads_total{outcome="failure"} 0"#,
        r#"podward_admission_requests_total{webhook="/allow",operation="CREATE",outcome="allowed"} 2"#,
        r#"podward_admission_request_duration_seconds_count{webhook="/allow"} 2"#,
        "podward_admission_in_flight 0",
        "podward_admission_unknown_path_requests_total 0",
        r#"podward_build_info{service="test",version="1"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }

    stop.cancel();
    within(SOON, process).await.unwrap();
}

#[tokio::test]
async fn it_is_unready_but_serves_during_the_drain_delay() {
    let path = PathFile::new();
    let running = serve(&["--webhook-path-file", path.file(), "--drain-delay=600"]).await;
    until_ready(running.at.admin).await;
    running.stop.cancel();
    within(SOON, async {
        while admin(running.at.admin, "/readyz").await
            != (StatusCode::SERVICE_UNAVAILABLE, "not ready: running\n".to_owned())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    connect(running.at.tls, &running.certificate, "h2").await.unwrap();
    running.process.abort();
}
