//! Load generators and benchmarks. Each module is one benchmark. It takes options and returns a report that is
//! written as JSON.
#![forbid(unsafe_code)]

pub mod admission;
mod audit;
pub mod bare_writes;
pub mod clonesets;
pub mod drain;
pub mod evidence;
mod fleet;
pub mod operations;
pub mod registries;
pub mod restart;
pub mod rules;
pub mod scale;
mod simulated;
pub mod times;
mod usage;
pub mod webhook;
