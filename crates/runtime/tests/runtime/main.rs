//! Tests of the public API: leader election against an API server in memory, and webhooks over real TLS.
// Helpers of tests need no documentation, and may panic.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod api_server;
mod authn;
mod flood;
mod forged_reviews;
mod grpc;
mod grpc_flood;
mod lease;
mod rotation;
mod serving;
mod support;
mod unread_bodies;
