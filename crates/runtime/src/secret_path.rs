//! The secret in the path of each review ([`podward_core::webhook_path`]), as the webhooks check it.
//!
//! [`SecretPathGuard`] stands before the [`AdmissionService`](crate::admission::AdmissionService). It answers 404 to
//! every path without an accepted secret, before it reads the body, and passes other requests on without the secret.
//! So the code behind it cannot write the secret to logs, traces or metrics.
//!
//! The accepted secrets ([`AcceptedSecrets`]) are those of the Secret that a watch follows, or of a file. While none is
//! known, nothing is accepted, and the process is not ready.

mod accepted;
mod args;
mod file;
mod guard;
mod metrics;
mod watch;

pub use accepted::AcceptedSecrets;
pub use args::SecretPathArgs;
pub use file::SecretFileError;
pub use guard::SecretPathGuard;
pub use metrics::SecretPathMetrics;
