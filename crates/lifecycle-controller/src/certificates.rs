//! Podward's own certificates: an authority, a serving certificate for each service, and the webhooks' `caBundle`.
//!
//! ```text
//!  Secret podward-ca: who signs, who will next, all that are trusted
//!     │ signs                        │ trusted
//!     ▼                              ▼
//!  Secret <service>-tls: pair, trusted ── read by the service       caBundle of both webhook configurations
//! ```
//!
//! # Guarantees
//! - Nobody is shown a certificate that he can't know the authority of: a new authority is trusted by everybody for a twelfth of its
//!   life (a day at most) before it signs, and the old one until it has expired.
//! - A certificate is renewed when two thirds of its time have passed; if nobody is there to do it then, a third is left.
//! - Who has signed what services still have, as cert-manager before it was let go, is trusted until he has ended.
//! - Private keys leave this module for their Secrets only.
//!
//! A Secret of the authority that is lost or can't be used is the one case with a gap: a new authority signs at once. The API server is
//! told of it first; services that call each other and have yet to hear of it are refused for that moment.

mod authority;
mod bundles;
mod keeper;
mod pem;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use keeper::Keeper;

use authority::Lifetimes;

/// Arguments of the authority that makes the certificates.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuthorityArgs {
    /// Make and renew the certificates of all services, in Secrets of the namespace, and tell the API server whom to trust
    #[arg(long, env = "PODWARD_CERTIFICATES", default_value_t = false, action = clap::ArgAction::Set)]
    pub(crate) certificates: bool,
    /// Seconds for which a service's certificate is good; a new one is made when two thirds have passed
    #[arg(long, env = "PODWARD_CERTIFICATE_LIFETIME", default_value = "7776000", value_parser = whole_seconds)]
    pub(crate) certificate_lifetime: Duration,
    /// Seconds for which the authority is good; at least three times as long
    #[arg(long, env = "PODWARD_CA_LIFETIME", default_value = "315360000", value_parser = whole_seconds)]
    pub(crate) ca_lifetime: Duration,
}

impl AuthorityArgs {
    /// The lifetimes that are asked for.
    ///
    /// # Errors
    /// When they don't go together.
    pub(crate) fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        let lifetimes = Lifetimes { certificate: self.certificate_lifetime, authority: self.ca_lifetime };
        anyhow::ensure!(
            lifetimes.certificate >= Duration::from_secs(60),
            "--certificate-lifetime must be at least 60 s"
        );
        anyhow::ensure!(
            lifetimes.authority >= lifetimes.certificate * 3,
            "--ca-lifetime must be at least three times --certificate-lifetime: a certificate can't outlive who signed it"
        );
        Ok(lifetimes)
    }
}

/// Up to a hundred years.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    const MOST: u64 = 100 * 365 * 86_400;
    match text.parse() {
        Ok(seconds) if seconds <= MOST => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is not a whole number of seconds, at most {MOST}")),
    }
}
