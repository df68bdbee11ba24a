//! The validating webhook as a service, without sockets.
// The helpers of tests are tests, too.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod cluster;
mod controller;
mod fuzz;
mod hold;
mod rules;
mod scene;
mod validate;
mod wait;
