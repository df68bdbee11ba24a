//! A gRPC server: on the TLS listener of [`crate::tls`], so with a certificate that may be rotated and, if wished, client
//! certificates; with health, reflection and metrics; and with bounds on everything that a client can hold.
//!
//! ```no_run
//! # async fn serve<S>(
//! #     my_service: S,
//! #     certificates: std::sync::Arc<podward_runtime::tls::Certificates>,
//! #     stop: tokio_util::sync::CancellationToken,
//! # ) -> anyhow::Result<()>
//! # where
//! #     S: podward_runtime::grpc::Servable,
//! # {
//! # const DESCRIPTORS: &[u8] = &[];
//! use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
//!
//! let services = Services::new(DESCRIPTORS)?.add(my_service).await;
//! let bind = ([0, 0, 0, 0], 9444).into();
//! let server = GrpcServer::bind(bind, certificates, GrpcLimits::default(), GrpcMetrics::default()).await?;
//! server.serve(services, stop).await;
//! # Ok(())
//! # }
//! ```
//!
//! # What a service has to do itself
//! - Bound the size of a message: `MyServiceServer::new(..).max_decoding_message_size(MAX_MESSAGE_BYTES)`.
//! - Ask who calls: [`crate::authn`]. The connection's [`Peer`](crate::tls::Peer) and the certificate's
//!   [`CertificateUser`](crate::authn::CertificateUser) are in the extensions of each request.
//!
//! # What happens without it
//! - A request's deadline (`grpc-timeout`) ends it, also while it streams, and so does [`GrpcLimits::patience`] for its first answer.
//!   Its handler is dropped then, as it is when the client cancels.
//! - When the server stops, requests in flight are finished; a stream that has nothing to say at that moment ends with UNAVAILABLE,
//!   so that its client turns to another replica at once.

mod deadline;
mod gateway;
mod metrics;
mod server;
mod services;
mod tracked;

pub use deadline::timeout_of;
pub use metrics::GrpcMetrics;
pub use server::{GrpcLimits, GrpcServer};
pub use services::{Servable, Services, ServicesError};

/// The longest message that is read, in bytes: a hook with its certificates, or a pod's labels, take a small part of it.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
