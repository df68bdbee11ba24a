//! The way to a gRPC server: TLS checked against an authority of ours, and a bearer token, both read again when their files change.
//!
//! ```no_run
//! # fn client() -> anyhow::Result<()> {
//! use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
//!
//! let channel = Connect::new("https://lifecycle-controller.podward-system.svc:9444", Trust::file("/etc/podward/ca.crt"))?.lazy()?;
//! let token = BearerToken::from_file("/var/run/secrets/kubernetes.io/serviceaccount/token");
//! let intercepted = tonic::service::interceptor::InterceptedService::new(channel, token);
//! # Ok(())
//! # }
//! ```

mod connect;
mod replicas;
mod token;
mod trust;

pub use connect::{Connect, ConnectError, InvalidEndpoint, Target};
pub use replicas::Replicas;
pub use token::BearerToken;
pub use trust::{InvalidTrust, Trust, system_anchors};
