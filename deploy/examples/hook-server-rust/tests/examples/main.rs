//! The examples of hook systems, run: the servers in Rust and Python are asked what Podward asks, and all of them
//! register.
// The helpers of tests are tests, too.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attached;
mod callers;
mod conversation;
mod files;
mod interrupted;
mod manifests;
mod program;
mod questions;
mod registering;
mod registry;
