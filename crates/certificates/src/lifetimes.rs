//! The lifetimes of certificates.

use std::time::Duration;

/// The lifetimes of certificates.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The lifetime of a service's certificate.
    pub certificate: Duration,
    /// The lifetime of the authority.
    pub authority: Duration,
}

impl Lifetimes {
    /// Returns the time for which a new authority is trusted before it signs. All callers read it in this time.
    pub(crate) fn notice(self) -> Duration {
        (self.authority / 12).min(Duration::from_secs(86_400))
    }
}
