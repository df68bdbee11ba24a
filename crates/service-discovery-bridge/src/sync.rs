//! Reading and writing a registry until it shows what it should.

mod access;
mod call_log;
mod limiter;
mod listing;
mod managed;
mod place;
mod settle;
mod stale_lists;
mod task;

pub(crate) use access::RegistryAccess;
pub(crate) use call_log::{CallLog, RegistryCall};
pub(crate) use limiter::Limiters;
pub(crate) use listing::read_services;
pub(crate) use managed::ManagedRegistry;
#[cfg(test)]
pub(crate) use managed::tests;
pub(crate) use place::Place;
pub(crate) use settle::settle;
pub(crate) use task::{Outcome, Task};
