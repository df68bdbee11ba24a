//! Reading and writing a registry until it shows what it should.

mod access;
mod limited;
mod limiter;
mod listing;
mod recorded;
mod settle;

pub(crate) use access::RegistryAccess;
pub(crate) use limited::LimitedRegistry;
pub(crate) use limiter::Limiters;
pub(crate) use listing::read_services;
pub(crate) use recorded::RegistryCall;
#[cfg(test)]
pub(crate) use recorded::tests;
pub(crate) use settle::{Outcome, Task, settle};
