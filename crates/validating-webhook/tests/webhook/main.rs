//! Tests of the validating webhook as a service without sockets.
// A helper of a test fails as a test does.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod attacks;
mod discovery;
mod evictions;
mod fake_cluster;
mod fake_collector;
mod fake_controller;
mod fixture;
mod fuzz;
mod hold;
mod rules;
mod traces;
mod validate;
mod wait;
