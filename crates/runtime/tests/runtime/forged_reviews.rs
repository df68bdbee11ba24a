//! Reviews that the API server has not sent, to a webhook in the process of the test.

use std::fs;
use std::time::Duration;

use hyper::StatusCode;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;

use crate::rotation::{Running, admin, serve, until_ready};
use crate::support::{PathFile, connect, connect_as, http1, post, within};

const SOON: Duration = Duration::from_secs(20);

fn review() -> String {
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let request = json!({"uid": "u", "operation": "CREATE", "object": {}, "resource": resource});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

async fn answer(running: &Running, path: &str) -> StatusCode {
    let mut sender = http1(connect(running.at.tls, &running.certificate, "http/1.1").await.unwrap()).await;
    sender.send_request(post(path, review())).await.unwrap().status()
}

#[tokio::test]
async fn a_review_without_the_secret_in_its_path_is_answered_404() {
    let path = PathFile::new();
    let running = serve(&["--webhook-path-file", path.file()]).await;
    until_ready(running.at.admin).await;
    assert_eq!(answer(&running, &path.path("/allow")).await, StatusCode::OK);
    for forged in ["/allow", "/", &format!("/{}/allow", "0".repeat(64))] {
        assert_eq!(answer(&running, forged).await, StatusCode::NOT_FOUND, "{forged}");
    }
    let (_, metrics) = admin(running.at.admin, "/metrics").await;
    let line = "podward_admission_unknown_path_requests_total 3";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

/// The webhook does not know the secret yet, because the API server does not answer.
#[tokio::test]
async fn a_webhook_without_a_secret_accepts_nothing_and_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "c", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let running = serve(&["--kubeconfig", kubeconfig.to_str().unwrap()]).await;
    let expected = (StatusCode::SERVICE_UNAVAILABLE, "not ready: webhook-path\n".to_owned());
    within(SOON, async {
        while admin(running.at.admin, "/readyz").await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for forged in ["/allow", "/", "//allow"] {
        assert_eq!(answer(&running, forged).await, StatusCode::NOT_FOUND, "{forged}");
    }
}

/// An authority, and certificates of clients that it signs.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { params, key: KeyPair::generate().unwrap() }
    }

    fn pem(&self) -> String {
        self.params.self_signed(&self.key).unwrap().pem()
    }

    fn client(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (made.der().clone(), key.into())
    }
}

#[tokio::test]
async fn with_a_client_authority_only_the_named_api_server_sends_reviews() {
    let (authority, other) = (Authority::new(), Authority::new());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), authority.pem()).unwrap();
    let path = PathFile::new();
    let running = serve(&[
        "--webhook-path-file",
        path.file(),
        "--client-ca",
        file.path().to_str().unwrap(),
        "--client-name=kube-apiserver",
    ])
    .await;
    // The process checks its own port without a certificate.
    until_ready(running.at.admin).await;

    let send = async |client| {
        let stream = connect_as(client, running.at.tls, &running.certificate, "http/1.1").await.ok()?;
        let handshake = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.ok()?;
        tokio::spawn(connection);
        // With TLS 1.3, the client learns that it is refused from its first read.
        let sent = within(SOON, sender.send_request(post(&path.path("/allow"), review()))).await;
        sent.ok().map(|response| response.status())
    };
    assert_eq!(send(Some(authority.client("kube-apiserver"))).await, Some(StatusCode::OK));
    assert_eq!(send(None).await, None, "without a certificate");
    assert_eq!(send(Some(authority.client("kubelet"))).await, None, "another name");
    assert_eq!(send(Some(other.client("kube-apiserver"))).await, None, "another authority");
    let (_, metrics) = admin(running.at.admin, "/metrics").await;
    let line = r#"podward_admission_requests_total{webhook="/allow",operation="CREATE",outcome="allowed"} 1"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}
