//! Reviews that the API server has not sent, as anybody who reaches the port of a webhook can send them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use podward_support::{Cluster, within};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

/// The time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A webhook, as a client on the network reaches it.
#[derive(Clone, Debug)]
pub struct ReachableWebhook {
    /// The cluster in whose network it is.
    pub cluster: Cluster,
    /// Its address.
    pub address: SocketAddr,
    /// The authority of its certificate, as PEM.
    pub ca: String,
    /// A name in its certificate.
    pub server_name: String,
}

impl ReachableWebhook {
    /// Sends a review to `path` and returns the status and the body of the answer.
    ///
    /// # Errors
    /// Fails if the webhook does not answer.
    pub async fn send(&self, path: &str, review: &Value) -> Result<(StatusCode, String)> {
        let sent = self.send_now(path, review);
        within(ANSWER_TIMEOUT, || format!("the answer of the webhook at {}", self.address), sent).await
    }

    async fn send_now(&self, path: &str, review: &Value) -> Result<(StatusCode, String)> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(certificate.context("read the authority of the webhook")?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(self.server_name.clone())?;
        let socket = self.cluster.connect(self.address).await.context("connect to the webhook")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
        let stream = stream.context("speak TLS with the webhook")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::post(path)
            .header("host", &self.server_name)
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(review.to_string()))?;
        let answer = sender.send_request(request).await.context("send a review")?;
        let status = answer.status();
        let body = answer.into_body().collect().await.context("read the answer")?.to_bytes();
        connection.abort();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Returns a review of the eviction of a pod, by a user that may do everything, without a grace period.
#[must_use]
pub fn forged_eviction(namespace: &str, pod: &str, dry_run: bool) -> Value {
    let options = json!({"gracePeriodSeconds": 0});
    review(json!({
        "uid": "forged", "operation": "CREATE", "subResource": "eviction", "name": pod, "namespace": namespace,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "dryRun": dry_run,
        "userInfo": {"username": "system:admin", "groups": ["system:masters"]}, "oldObject": null,
        "object": {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options,
        },
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }))
}

/// Returns a review of the delete of a pod, by a user that may do everything, without a grace period. `old` is the pod.
#[must_use]
pub fn forged_delete(namespace: &str, pod: &str, old: &Value, dry_run: bool) -> Value {
    review(json!({
        "uid": "forged", "operation": "DELETE", "name": pod, "namespace": namespace,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "dryRun": dry_run,
        "userInfo": {"username": "system:admin", "groups": ["system:masters"]}, "object": null, "oldObject": old,
        "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0},
    }))
}

fn review(request: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}
