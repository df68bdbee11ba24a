//! Carries out the plan of a set.

mod create;
mod identities;
mod plan;
mod pods;
mod taken_name;
mod writes;

pub(crate) use plan::{Executed, PlanWork};
pub(crate) use pods::Outcome;

/// The most pods of a set that are created at the same time, and the most that are changed.
const MAX_CONCURRENT: usize = 32;
