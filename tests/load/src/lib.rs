//! Load generators and benchmarks. Each module is one benchmark: options in, a report out that goes to JSON.
#![forbid(unsafe_code)]

pub mod operations;
pub mod webhook;
