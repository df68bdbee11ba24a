//! The certificates of the proxy, and of its clients.

use std::{path::Path, sync::Arc};

use rustls::{ClientConfig, RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::pki::name;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn roots(pki: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(pki, name::CA)?)?;
    Ok(roots)
}

fn certificate(pki: &Path, name: &str) -> Result<CertificateDer<'static>, Failure> {
    Ok(CertificateDer::from_pem_file(pki.join(format!("{name}.crt")))?)
}

fn key(pki: &Path, name: &str) -> Result<PrivateKeyDer<'static>, Failure> {
    Ok(PrivateKeyDer::from_pem_file(pki.join(format!("{name}.key")))?)
}

/// Returns the settings of a server with the certificate of the API servers. Clients may have a certificate of the
/// cluster. HTTP/2 is not offered.
pub(super) fn server_config(pki: &Path) -> Result<ServerConfig, Failure> {
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots(pki)?)).allow_unauthenticated().build()?;
    let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
    let certificates = vec![certificate(pki, name::API_SERVER)?];
    Ok(builder.with_single_cert(certificates, key(pki, name::API_SERVER)?)?)
}

/// Returns the settings of a client of the API server that has the certificate of the proxy's own client, or none if
/// that has none.
pub(super) fn client_config(pki: &Path, of: Option<&CertificateDer<'_>>) -> Result<ClientConfig, Failure> {
    let builder = ClientConfig::builder().with_root_certificates(roots(pki)?);
    let Some(shown) = of else { return Ok(builder.with_no_client_auth()) };
    let name = named(pki, shown)?;
    Ok(builder.with_client_auth_cert(vec![shown.clone().into_owned()], key(pki, &name)?)?)
}

/// Returns the name under which a certificate is in the folder of the PKI.
fn named(pki: &Path, shown: &CertificateDer<'_>) -> Result<String, Failure> {
    for entry in std::fs::read_dir(pki)? {
        let path = entry?.path();
        let is_certificate = path.extension().is_some_and(|extension| extension == "crt");
        if is_certificate && CertificateDer::from_pem_file(&path).is_ok_and(|found| found == *shown) {
            return Ok(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    Err("the client's certificate is not in the folder of the PKI, so that its key is unknown".into())
}
