//! Who calls, and what they may do: callers of gRPC prove themselves to Kubernetes, and may do what its RBAC lets them.
//!
//! [`Authenticator`] finds out who calls, from a bearer token (`TokenReview`, authentication.k8s.io/v1) or from the client certificate
//! of the connection (common name: user, organisations: groups, as for the API server). [`Authorizer`] asks whether that user may do
//! something (`SubjectAccessReview`, authorization.k8s.io/v1).
//!
//! # Guarantees
//! - What the API server doesn't say is not allowed: when it is away, the answer is UNAVAILABLE.
//! - A good token is believed for 10 s, a bad one refused for 2 s, an access decision is good for 10 s; so that is how long a
//!   revoked right lasts. Tokens are remembered by their SHA-256 only, never logged, and never part of an error.
//! - The API server is asked once for many equal questions at a time, and a bounded number of questions at a time: a flood of
//!   made-up tokens becomes a short queue.

mod authenticator;
mod authorizer;
mod cache;
mod certificate;
mod identity;

pub use authenticator::Authenticator;
pub use authorizer::{Access, Authorizer};
pub use certificate::{CertificateUser, InvalidCertificateUser};
pub use identity::Identity;
