//! Authorities of webhooks.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

const MAX_BUNDLE: usize = 262_144;

/// The certificates of a `caBundle`: PEM as base64, or plain PEM. Empty for `""` and `Cg==` (a line's end), which stand for the
/// system's authorities.
///
/// # Errors
/// When it is neither, or holds no certificate.
pub fn ca_certificates(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    if bundle.len() > MAX_BUNDLE {
        return Err(format!(
            "more than {MAX_BUNDLE} bytes; only the authorities that sign its certificate are needed"
        ));
    }
    let pem = if bundle.contains("-----BEGIN") { bundle.as_bytes().to_vec() } else { decoded(bundle)? };
    if pem.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Err(error) => Err(format!("what the base64 stands for is not PEM: {error}")),
        Ok(found) if found.is_empty() => {
            Err("no certificate in it; give the PEM certificate of the authority that signs the webhook's own, as base64"
                .to_owned())
        }
        Ok(found) => Ok(found),
    }
}

/// Lines may be broken anywhere, as base64 tools do.
fn decoded(bundle: &str) -> Result<Vec<u8>, String> {
    let text: String = bundle.chars().filter(|char| !char.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(text).map_err(|error| format!("neither base64 nor PEM: {error}"))
}
