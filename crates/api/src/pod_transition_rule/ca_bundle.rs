//! The certificate authorities of webhooks.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

const MAX_BUNDLE: usize = 262_144;

/// Returns the certificates of a `caBundle`, which is base64 of PEM, or PEM. Returns no certificates for `""` and
/// `Cg==` (a newline), which stand for the authorities of the system.
///
/// # Errors
/// Fails if the bundle is invalid or contains no certificate.
pub fn ca_certificates(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    if bundle.len() > MAX_BUNDLE {
        return Err(format!(
            "longer than {MAX_BUNDLE} bytes; include only the authorities that issue the webhook's certificate"
        ));
    }
    let pem = if bundle.contains("-----BEGIN") { bundle.as_bytes().to_vec() } else { decoded(bundle)? };
    if pem.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Err(error) => Err(format!("the decoded text is not valid PEM: {error}")),
        Ok(found) if found.is_empty() => {
            Err("contains no certificate; set it to the base64 of the PEM certificate of the authority that issues \
                 the webhook's certificate"
                .to_owned())
        }
        Ok(found) => Ok(found),
    }
}

/// Decodes base64 with line breaks at any position, as base64 tools write it.
fn decoded(bundle: &str) -> Result<Vec<u8>, String> {
    let text: String = bundle.chars().filter(|char| !char.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(text).map_err(|error| format!("neither base64 nor PEM: {error}"))
}
