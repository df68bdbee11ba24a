//! How a registry is reached.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};

use crate::dialer::Dialer;

/// The addresses of a registry, and what is needed to call them.
#[derive(Clone, Debug)]
pub struct Connection {
    /// One or more addresses, each of the form that the kind of registry expects: a URL, or `host:port`.
    pub addresses: Vec<String>,
    /// TLS. `None` if the addresses are not encrypted.
    pub tls: Option<TlsOptions>,
    /// Who the client is.
    pub credentials: Credentials,
    /// The maximum time for one call.
    pub timeout: Duration,
    /// Opens the connections.
    pub dialer: Arc<dyn Dialer>,
}

/// Who a client is. Neither `Debug` nor errors show secrets.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// None.
    #[default]
    Anonymous,
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A token.
    Token(SecretString),
}

impl Credentials {
    /// Returns what no text may contain, although a server may send it back.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let all = match self {
            Self::Anonymous => Vec::new(),
            Self::Password { password, .. } => vec![password.clone(), self.basic().into()],
            Self::Token(token) => vec![token.clone()],
        };
        all.into_iter().filter(|secret| !secret.expose_secret().is_empty()).collect()
    }

    /// Returns a user and a password as the authorization `Basic` has them.
    pub(crate) fn basic(&self) -> String {
        match self {
            Self::Password { user, password } => {
                STANDARD.encode(format!("{user}:{}", password.expose_secret()))
            }
            _ => String::new(),
        }
    }
}

/// How a TLS server is verified, and the certificate of the client.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The certificate authorities, in PEM. `None` for those of the system.
    pub authorities: Option<String>,
    /// The certificate chain of the client and its private key, in PEM.
    pub identity: Option<(String, SecretString)>,
}

impl TlsOptions {
    /// Returns the configuration for rustls.
    ///
    /// # Errors
    /// Fails with a message for people if a certificate or key is not valid PEM, if there is none, or if they do not
    /// belong together.
    pub fn client_config(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let authorities = match &self.authorities {
            Some(pem) => certificates("the certificate authorities", pem)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        for authority in authorities {
            roots.add(authority).map_err(|error| format!("a certificate authority is unusable: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let Some((chain, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates("the certificate of the client", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
            .map_err(|_| "the private key of the client is not valid PEM".to_owned())?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("the certificate of the client and its key are unusable: {error}"))
    }
}

fn certificates(what: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| format!("{what}: not valid PEM: {error}"))?;
    if found.is_empty() {
        return Err(format!("{what}: there is no certificate"));
    }
    Ok(found)
}
