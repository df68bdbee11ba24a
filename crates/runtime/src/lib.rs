//! What every Podward service shares: the way in (HTTPS with a certificate that may be rotated, admission reviews, probes and
//! metrics), the way to the API server (client, leader election), and the life of a process (arguments, logs, signals).
//!
//! A webhook is a [`Webhook`](admission::Webhook) given to [`run_webhook`]. A controller takes the parts: [`telemetry::init`],
//! [`shutdown::block_on`], [`client::connect`], [`admin::AdminServer`] with [`admin::Readiness`], and [`lease::stand`].
//!
//! Guarantees: no input from the network makes a service panic; nothing that a client can hold (connections, bytes, time) is
//! without a bound; a request that was accepted is answered, also when the process is told to stop; a lease is never held by two
//! replicas by their own clocks.
#![forbid(unsafe_code)]

pub mod admin;
pub mod admission;
pub mod args;
pub mod authn;
pub mod client;
pub mod grpc;
pub mod grpc_client;
pub mod lease;
pub mod nodes;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watched;
mod webhook_server;

pub use webhook_server::{Listening, Setup, WebhookArgs, run_webhook, serve_webhook};
