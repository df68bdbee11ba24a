//! Command-line arguments for the certificates.

use std::time::Duration;

use crate::lifetimes::Lifetimes;

/// Arguments for the authority that signs the certificates.
#[derive(Clone, Debug, clap::Args)]
pub struct AuthorityArgs {
    /// Create and renew the certificates of all services as Secrets in the namespace, and write the authority to the
    /// webhook configurations
    #[arg(long, env = "PODWARD_CERTIFICATES", default_value_t = false, action = clap::ArgAction::Set)]
    pub certificates: bool,
    /// Lifetime of a service's certificate in seconds; it is renewed when two thirds of its lifetime have passed
    #[arg(long, env = "PODWARD_CERTIFICATE_LIFETIME", default_value = "7776000", value_parser = whole_seconds)]
    pub certificate_lifetime: Duration,
    /// Lifetime of the authority in seconds; at least three times the lifetime of a certificate
    #[arg(long, env = "PODWARD_CA_LIFETIME", default_value = "315360000", value_parser = whole_seconds)]
    pub ca_lifetime: Duration,
}

impl AuthorityArgs {
    /// Returns the lifetimes.
    ///
    /// # Errors
    /// Fails if the lifetime of certificates is shorter than 60 s, or the lifetime of the authority is shorter than
    /// three times the lifetime of certificates.
    pub fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        let lifetimes = Lifetimes { certificate: self.certificate_lifetime, authority: self.ca_lifetime };
        anyhow::ensure!(
            lifetimes.certificate >= Duration::from_secs(60),
            "--certificate-lifetime must be at least 60 s"
        );
        anyhow::ensure!(
            lifetimes.authority >= lifetimes.certificate * 3,
            "--ca-lifetime must be at least three times --certificate-lifetime: a certificate must expire before its \
             authority"
        );
        Ok(lifetimes)
    }
}

/// Parses a number of seconds, at most 100 years.
pub(crate) fn whole_seconds(text: &str) -> Result<Duration, String> {
    const MAX_SECONDS: u64 = 100 * 365 * 86_400;
    match text.parse() {
        Ok(seconds) if seconds <= MAX_SECONDS => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is not a whole number of seconds, at most {MAX_SECONDS}")),
    }
}
