//! Arguments of the clients that may connect.

use std::path::PathBuf;

use clap::Args;

use super::serving_certificate::{ServingCertificate, ServingCertificateError};
use super::source::AuthoritySource;

/// Arguments of the clients that may send reviews: API servers with a client certificate.
#[derive(Clone, Debug, Default, Args)]
pub struct ReviewClientArgs {
    /// PEM file with the authorities of client certificates; connections without a certificate of a client named by
    /// --client-name are refused; read again when it changes
    #[arg(long, env = "PODWARD_REVIEW_CLIENT_CA", value_name = "FILE", requires = "client_names")]
    pub client_ca: Option<PathBuf>,
    /// Common name, DNS name or URI in the certificate of an API server; may be given several times
    #[arg(
        long = "client-name",
        env = "PODWARD_REVIEW_CLIENT_NAMES",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "client_ca"
    )]
    pub client_names: Vec<String>,
}

impl ReviewClientArgs {
    /// Makes `certificate` require a client certificate, if `--client-ca` is given.
    ///
    /// # Errors
    /// Fails if the file of `--client-ca` can't be read or holds no certificate.
    pub fn restrict(
        &self,
        certificate: ServingCertificate,
    ) -> Result<ServingCertificate, ServingCertificateError> {
        match &self.client_ca {
            Some(file) => {
                certificate.with_required_clients(AuthoritySource::File(file.clone()), &self.client_names)
            }
            None => Ok(certificate),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        clients: ReviewClientArgs,
    }

    /// An authority alone would accept every certificate of a cluster's authority, such as those of kubelets.
    #[test]
    fn an_authority_needs_names_and_names_need_an_authority() {
        let parse = |args: &[&str]| Flags::try_parse_from([&["x"], args].concat()).map(|flags| flags.clients);
        assert!(parse(&[]).unwrap().client_ca.is_none());
        assert!(parse(&["--client-ca=a"]).is_err());
        assert!(parse(&["--client-name=a"]).is_err());
        let clients = parse(&["--client-ca=a", "--client-name=a", "--client-name=b"]).unwrap();
        assert_eq!(clients.client_names, ["a", "b"]);
    }
}
