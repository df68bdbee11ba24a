//! Queries the health endpoints of components, and the cluster DNS, from inside the cluster.

mod dns;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::Empty;
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::{control::ControlClient, error::TestClusterError};

/// The longest time that one response may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The health endpoint of a component.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) at: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) path: &'static str,
}

/// Queries health endpoints. It authenticates as the admin if the endpoint uses TLS.
#[derive(Clone)]
pub(crate) struct Prober {
    tls: TlsConnector,
}

impl Prober {
    /// Returns a prober. `pki` is the folder with the cluster's CA and the admin's certificate.
    pub(crate) fn new(pki: &Path) -> Result<Self, TestClusterError> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = client_config(pki)
            .map_err(|source| TestClusterError::Kubeconfig { path: pki.join("admin.crt"), source })?;
        Ok(Self { tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Returns whether the component responds with 200. `control` is the client of the init of its node.
    pub(crate) async fn healthy(&self, control: &ControlClient, health: &Health) -> bool {
        matches!(tokio::time::timeout(TIMEOUT, self.ask(control, health)).await, Ok(Ok(StatusCode::OK)))
    }

    /// Returns whether the DNS server at `at` has an IPv4 address of `name`.
    pub(crate) async fn resolves(control: &ControlClient, at: SocketAddr, name: &str) -> bool {
        let asking = async {
            let mut stream = control.connect(at).await.ok()?;
            dns::has_address(&mut stream, name).await.ok()
        };
        matches!(tokio::time::timeout(TIMEOUT, asking).await, Ok(Some(true)))
    }

    async fn ask(
        &self,
        control: &ControlClient,
        health: &Health,
    ) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
        let stream = control.connect(health.at).await?;
        if health.tls {
            let name = ServerName::from(health.at.ip());
            get(self.tls.connect(name, stream).await?, health).await
        } else {
            get(stream, health).await
        }
    }
}

async fn get<S>(stream: S, health: &Health) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request =
        Request::get(health.path).header("host", health.at.to_string()).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request);
    // The connection transfers the bytes. It is dropped, and closed, after the response.
    tokio::select! {
        answer = answer => Ok(answer?.status()),
        ended = connection => Err(ended.err().map_or_else(|| "closed".into(), Into::into)),
    }
}

fn client_config(pki: &Path) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pki.join("ca.crt"))?)?;
    let certificate = CertificateDer::from_pem_file(pki.join("admin.crt"))?;
    let key = PrivateKeyDer::from_pem_file(pki.join("admin.key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key)?)
}
