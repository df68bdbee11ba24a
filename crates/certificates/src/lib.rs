//! What the API server and the services need to trust each other: Podward's own certificates, with the `caBundle` of the
//! webhooks ([`CertificateManager`]), and the secret in the paths of the webhooks ([`WebhookPathManager`]). With
//! cert-manager only the second runs.
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
//!
//! The guarantees of the secret paths are those of [`podward_core::webhook_path`].
#![forbid(unsafe_code)]

mod args;
mod authority;
mod bundles;
mod changes;
mod lifetimes;
mod manager;
mod names;
mod path_args;
mod path_manager;
mod paths;
mod pem;
#[cfg(test)]
mod tests;
mod upkeep;

pub use args::AuthorityArgs;
pub use lifetimes::Lifetimes;
pub use manager::CertificateManager;
pub use path_args::WebhookPathArgs;
pub use path_manager::WebhookPathManager;
