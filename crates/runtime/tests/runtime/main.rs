//! The runtime from outside: leader election against an API server in memory, and webhooks over real TLS.
// The helpers of tests are tests, too.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod api_server;
mod authn;
mod grpc;
mod lease;
mod rotation;
mod serving;
mod support;
