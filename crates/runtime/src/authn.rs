//! Authentication and authorization of gRPC callers by Kubernetes.
//!
//! [`Authenticator`] identifies the caller by a bearer token (`TokenReview`, authentication.k8s.io/v1) or by the client
//! certificate of the connection (common name: user, organisations: groups, as for the API server). [`Authorizer`] asks
//! whether RBAC allows that user an action (`SubjectAccessReview`, authorization.k8s.io/v1).
//!
//! # Guarantees
//!
//! - Without an answer of the API server nothing is allowed: if it is down, the status is UNAVAILABLE.
//! - A valid token is cached for 10 s, an invalid one for 2 s, an access decision for 10 s. So a revoked right can
//!   last 10 s. Tokens are cached only by their SHA-256, never logged, and never part of an error.
//! - Equal questions at the same time need one request to the API server, and the number of concurrent requests is
//!   limited. So many invalid tokens do not flood the API server.

mod authenticator;
mod authorizer;
mod cache;
mod certificate;
mod identity;

pub use authenticator::Authenticator;
pub(crate) use authenticator::MAX_CONCURRENT_REVIEWS;
pub use authorizer::{Access, Authorizer};
pub use certificate::{CertificateUser, InvalidCertificateUser};
pub use identity::Identity;
