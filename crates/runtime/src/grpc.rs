//! A gRPC server on the TLS listener of [`crate::tls`]. The serving certificate can be rotated, and client certificates
//! are optional. The server has health, reflection and metrics, and limits on everything that a client can hold.
//!
//! ```no_run
//! # async fn serve<S>(
//! #     my_service: S,
//! #     certificates: std::sync::Arc<podward_runtime::tls::ServingCertificate>,
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
//! # Duties of a service
//!
//! - Limit the size of a message: `MyServiceServer::new(..).max_decoding_message_size(MAX_MESSAGE_BYTES)`.
//! - Name the authenticator of its callers with [`Services::authenticate`]. The caller's
//!   [`Identity`](crate::authn::Identity) is then in the extensions of each request, in an [`Arc`](std::sync::Arc);
//!   [`Authenticator::authenticate`](crate::authn::Authenticator::authenticate) returns it. So are the connection's
//!   [`TlsPeer`](crate::tls::TlsPeer) and the certificate's [`CertificateUser`](crate::authn::CertificateUser).
//!
//! # Duties of the server
//!
//! - Callers are authenticated by the head of a request, before its body is read. Health and reflection are open to
//!   everyone, with messages of at most [`MAX_OPEN_MESSAGE_BYTES`].
//! - The messages in flight share a [`ByteBudget`](crate::budget::ByteBudget). A message that finds no room is refused
//!   with RESOURCE_EXHAUSTED, one that arrives too slowly with DEADLINE_EXCEEDED.
//! - A request ends at its deadline (`grpc-timeout`), also while it streams, and also if its client does not read the
//!   answer: its stream is reset then. It also ends if its first message takes longer than
//!   [`GrpcLimits::first_message_timeout`], or if its client reads nothing for
//!   [`ServerLimits::unread`](crate::tls::ServerLimits::unread). Its handler is dropped then, as when the client cancels.
//! - When the server stops, requests in flight are finished. A stream that has no message to send at that moment ends
//!   with UNAVAILABLE, so that its client connects to another replica at once.

mod deadline;
mod entrance;
mod gateway;
mod limits;
mod metered;
mod metrics;
mod server;
mod services;
mod tracked;

pub use deadline::timeout_of;
pub use limits::{GrpcLimits, MAX_MESSAGE_BYTES, MAX_OPEN_MESSAGE_BYTES};
pub use metrics::GrpcMetrics;
pub use server::GrpcServer;
pub use services::{Servable, Services, ServicesError};
pub use tracked::HeldByAnswer;
