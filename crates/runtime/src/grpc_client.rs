//! A gRPC client with TLS and a bearer token. Authorities, certificate and token are read again when their sources
//! change.
//!
//! ```no_run
//! # fn client() -> anyhow::Result<()> {
//! use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
//!
//! let url = "https://lifecycle-controller.podward-system.svc:9444";
//! let channel = Connect::new(url, Trust::file("/etc/podward/ca.crt"))?.lazy()?;
//! let token = BearerToken::from_file("/var/run/secrets/kubernetes.io/serviceaccount/token");
//! let intercepted = tonic::service::interceptor::InterceptedService::new(channel, token);
//! # Ok(())
//! # }
//! ```

mod connect;
mod replicas;
mod token;
mod trust;

pub(crate) use connect::{CONNECT_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};
pub use connect::{Connect, ConnectError, InvalidEndpoint, Target};
pub use replicas::Replicas;
pub use token::BearerToken;
pub use trust::{InvalidTrust, Trust, system_anchors};
