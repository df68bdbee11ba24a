//! Podward's own certificates: an authority, a serving certificate for each service, and the `caBundle` of the
//! webhooks.
//!
//! ```text
//!  Secret podward-ca: the current authority, the next one, and all trusted ones
//!     │ signs                                         │ trusted
//!     ▼                                               ▼
//!  Secret <service>-tls: certificate, key, trusted    caBundle of both webhook configurations
//!     │
//!     ▼
//!  read by the service
//! ```
//!
//! # Guarantees
//! - No service presents a certificate whose authority its callers cannot know. A new authority is trusted for a
//!   twelfth of its lifetime (at most a day) before it signs. The old authority is trusted until it expires.
//! - A certificate is renewed when two thirds of its lifetime have passed. If the controller is down at that time, a
//!   third of the lifetime remains.
//! - An authority that signed certificates which services still use is trusted until it expires. An example is
//!   cert-manager before this crate replaces it.
//! - Private keys are written to their Secrets only.
//!
//! There is one case with a gap: the Secret of the authority is lost or unusable. A new authority then signs at once.
//! The API server learns about it first. Calls between services fail until the caller has read the new authority.
#![forbid(unsafe_code)]

mod args;
mod authority;
mod bundles;
mod changes;
mod lifetimes;
mod manager;
mod names;
mod pem;
#[cfg(test)]
mod tests;

pub use args::AuthorityArgs;
pub use lifetimes::Lifetimes;
pub use manager::CertificateManager;
