//! The code of a process that every Podward service shares.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | command line arguments that services have in common |
//! | [`run`], [`telemetry`], [`admin`] | start and signals; logs and traces; probes and metrics |
//! | [`client`], [`retry`], [`lease`] | the API server: client, retry policies, leader election |
//! | [`tls`], [`admission`] | HTTPS with a certificate that can be rotated; admission webhooks |
//! | [`round_robin`] | a queue that serves its keys in turn |
//! | [`budget`] | one limit for the bytes of all requests in flight |
//! | [`secret_path`] | the secret in the path of each review |
//! | [`grpc`], [`grpc_client`], [`authn`] | gRPC server and client; authentication and authorization of callers |
//! | [`address_policy`] | connections to URLs that users without rights in Podward's namespace wrote |
//!
//! A webhook is a [`Webhook`](admission::Webhook), which [`run_webhook`] serves. A controller uses the parts:
//! [`run`], [`client::connect`], [`admin::AdminServer`] with [`admin::Readiness`], and [`lease::stand`].
//!
//! # Guarantees
//!
//! - No input from the network causes a panic.
//! - Everything that a client can hold (connections, bytes, time) has a limit.
//! - A request that was accepted is answered, also when the process is stopped.
//! - Two replicas never hold a Lease at the same time by their own clocks.
#![forbid(unsafe_code)]

pub mod address_policy;
pub mod admin;
pub mod admission;
pub mod args;
pub mod authn;
pub mod budget;
pub mod client;
mod connections;
mod error_chain;
mod file_limit;
pub mod grpc;
pub mod grpc_client;
pub mod lease;
mod listen;
pub mod places;
pub mod progress;
pub mod retry;
pub mod round_robin;
pub mod secret_path;
mod serving_check;
mod shutdown;
pub mod telemetry;
pub mod tls;
mod webhook_server;

pub use error_chain::error_chain;
pub use shutdown::run;
pub use webhook_server::{WebhookAddresses, WebhookArgs, WebhookSetup, run_webhook, serve_webhook};
