//! Reading and writing a registry until it shows what it should.

mod access;
mod listing;
mod recorded;
mod settle;

pub(crate) use access::RegistryAccess;
pub(crate) use listing::{Listing, list};
pub(crate) use recorded::RegistryCall;
pub(crate) use settle::{Outcome, Task, settle};
