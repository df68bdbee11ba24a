//! Arguments of certificates.

use std::path::{Path, PathBuf};

use clap::Args;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::metrics::TlsMetrics;
use super::secret::CertificateSecret;
use super::serving_certificate::{ServingCertificate, ServingCertificateError};
use super::source::{AuthoritySource, CertificateSource};

/// Arguments of a server's certificate, which is read from a Secret or from files.
#[derive(Clone, Debug, Args)]
pub struct CertificateArgs {
    /// PEM file with the server's certificate, then its chain; read again when it changes
    #[arg(long, env = "PODWARD_TLS_CERT", value_name = "FILE", default_value = "/etc/podward/tls/tls.crt")]
    pub tls_cert: PathBuf,
    /// PEM file with the certificate's private key; read again when it changes
    #[arg(long, env = "PODWARD_TLS_KEY", value_name = "FILE", default_value = "/etc/podward/tls/tls.key")]
    pub tls_key: PathBuf,
    /// Secret with the certificate (tls.crt, tls.key, ca.crt), which is watched; used instead of --tls-cert and
    /// --tls-key
    #[arg(
        long,
        env = "PODWARD_TLS_SECRET",
        value_name = "NAME",
        conflicts_with_all = ["tls_cert", "tls_key"]
    )]
    pub tls_secret: Option<String>,
    /// Namespace of that Secret
    #[arg(long, env = "PODWARD_NAMESPACE", default_value = "podward-system")]
    pub namespace: String,
}

impl CertificateArgs {
    /// Begins to watch the Secret of `--tls-secret` and waits until it has a certificate. Without that flag it does
    /// nothing.
    ///
    /// # Errors
    ///
    /// When `stop` comes first.
    pub async fn follow(
        &self,
        secret: &CertificateSecret,
        client: &Client,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(name) = &self.tls_secret else { return Ok(()) };
        secret.follow(client.clone(), &self.namespace, name, stop.clone()).await
    }

    /// Returns the source of the certificate: `secret` if `--tls-secret` is given, else the files.
    #[must_use]
    pub fn source(&self, secret: &CertificateSecret) -> CertificateSource {
        match self.tls_secret {
            Some(_) => CertificateSource::Secret(secret.clone()),
            None => CertificateSource::files(&self.tls_cert, &self.tls_key),
        }
    }

    /// Returns the source of authorities: `file` if it is given, else `ca.crt` in `secret` if `--tls-secret` is given,
    /// else the file `ca.crt` beside `--tls-cert`.
    #[must_use]
    pub fn authorities(&self, file: Option<&Path>, secret: &CertificateSecret) -> AuthoritySource {
        match (file, &self.tls_secret) {
            (Some(file), _) => AuthoritySource::File(file.to_owned()),
            (None, Some(_)) => AuthoritySource::Secret(secret.clone()),
            (None, None) => AuthoritySource::File(self.tls_cert.with_file_name("ca.crt")),
        }
    }
}

/// Arguments of services that call each other over gRPC.
#[derive(Clone, Debug, Args)]
pub struct PeerArgs {
    /// PEM file with the authorities of client certificates (common name: user, organisation: group); callers need
    /// tokens when not given
    #[arg(long, env = "PODWARD_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// User name of the lifecycle-controller
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_USER",
        default_value = "system:serviceaccount:podward-system:lifecycle-controller"
    )]
    pub controller_user: String,
    /// File with the token that this service sends to the lifecycle-controller; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

impl PeerArgs {
    /// Reads the server's certificate. With `--client-ca` the server also requests a certificate from clients.
    ///
    /// # Errors
    ///
    /// When a source can't be read, is not PEM, or the certificate and its key don't belong together.
    pub fn serving_certificate(
        &self,
        source: CertificateSource,
        metrics: TlsMetrics,
    ) -> Result<ServingCertificate, ServingCertificateError> {
        let certificate = ServingCertificate::load(source, metrics)?;
        match &self.client_ca {
            Some(client_ca) => certificate.with_client_ca(AuthoritySource::File(client_ca.clone())),
            None => Ok(certificate),
        }
    }
}
