//! A registry with an HTTP interface of its own, as companies write them. It runs in the process of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::TestCertificates;

/// What an [`InventedServer`] has stored, and what was sent to it.
#[derive(Debug, Default)]
pub struct InventedState {
    /// The bodies of the instances, by service and id.
    pub instances: BTreeMap<(String, String), Value>,
    /// The idempotency keys of the changes, in their order.
    pub keys: Vec<String>,
    /// The statuses of the next responses to changes. Nothing is changed then, but for 502.
    pub faults: Vec<u16>,
}

/// A server with these calls, below a path of one segment (`/v1`):
///
/// - `GET /services`: `{"services": [{"name": ...}]}`;
/// - `GET /services/<service>/instances`: `{"instances": [...]}`, or 404;
/// - `PUT` and `DELETE /services/<service>/instances/<id>`: it stores the body as it is;
/// - `PUT /services/<service>/instances/<id>/status`: the body is `{"status": ...}`.
///
/// Clients are who has [`TOKEN`](Self::TOKEN), or the user `ada` with the same password.
#[derive(Clone, Debug, Default)]
pub struct InventedServer(Arc<Mutex<InventedState>>);

impl InventedServer {
    /// The token of its clients.
    pub const TOKEN: &'static str = "sesame";

    /// Serves at a port of loopback, and returns the URL without a path. It may be called several times.
    ///
    /// # Errors
    /// Fails if no port is free, or the certificates are unusable.
    pub async fn start(&self, certificates: Option<&TestCertificates>) -> Result<String> {
        let acceptor = certificates.map(acceptor).transpose()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let registry = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (registry, acceptor) = (registry.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let serve = service_fn(move |request| {
                        let registry = registry.clone();
                        async move { Ok::<_, Infallible>(registry.answer(request).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                let _ = http.serve_connection(TokioIo::new(stream), serve).await;
                            }
                        }
                        None => drop(http.serve_connection(TokioIo::new(stream), serve).await),
                    }
                });
            }
        });
        Ok(url)
    }

    /// Returns what it has stored. Requests wait for the end of the borrow.
    pub fn stored(&self) -> MutexGuard<'_, InventedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the instances of `other`, as a replica does.
    pub fn replicate(&self, other: &Self) {
        let instances = other.stored().instances.clone();
        self.stored().instances = instances;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let (status, answer) = match header("authorization") {
            // The second one is `ada:sesame`.
            Some("Bearer sesame" | "Basic YWRhOnNlc2FtZQ==") => self.change(
                (head.method.as_str(), head.uri.path()),
                header("idempotency-key"),
                serde_json::from_slice(&body).unwrap_or_default(),
            ),
            other => (401, json!({"you sent": other})),
        };
        let mut response = Response::new(Full::from(answer.to_string()));
        *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
        response
    }

    fn change(&self, (method, path): (&str, &str), key: Option<&str>, body: Value) -> (u16, Value) {
        let mut stored = self.stored();
        let segments: Vec<&str> = path.split('/').skip(2).collect();
        let mut is_lost = false;
        if method != "GET" {
            stored.keys.push(key.unwrap_or_default().to_owned());
            if !stored.faults.is_empty() {
                match stored.faults.remove(0) {
                    // The response of a change that is made is lost.
                    502 => is_lost = true,
                    fault => return (fault, json!(null)),
                }
            }
        }
        let owned = |service: &str, id: &str| (service.to_owned(), id.to_owned());
        let (status, answer) = match (method, segments.as_slice()) {
            ("GET", ["services"]) => {
                let names: BTreeSet<_> = stored.instances.keys().map(|key| &key.0).collect();
                (200, json!({"services": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}))
            }
            ("GET", ["services", name, "instances"]) => {
                let found = stored.instances.iter().filter(|(key, _)| key.0 == *name);
                let values: Vec<_> = found.map(|(_, value)| value).collect();
                if values.is_empty() { (404, json!(null)) } else { (200, json!({"instances": values})) }
            }
            ("PUT", ["services", service, "instances", id]) => {
                stored.instances.insert(owned(service, id), body);
                (201, json!(null))
            }
            ("PUT", ["services", service, "instances", id, "status"]) => {
                match stored.instances.get_mut(&owned(service, id)) {
                    Some(value) => {
                        value["status"] = body["status"].clone();
                        (200, json!(null))
                    }
                    None => (404, json!(null)),
                }
            }
            ("DELETE", ["services", service, "instances", id]) => {
                match stored.instances.remove(&owned(service, id)) {
                    Some(_) => (204, json!(null)),
                    None => (404, json!(null)),
                }
            }
            _ => (400, json!(null)),
        };
        if is_lost { (502, json!(null)) } else { (status, answer) }
    }
}

fn acceptor(certificates: &TestCertificates) -> Result<TlsAcceptor> {
    let chain = CertificateDer::from_pem_slice(certificates.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
