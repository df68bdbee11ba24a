//! The targets.

mod grpc;
mod pod;
mod resource;
mod review;
mod rule_answer;
mod samples;

use crate::target::Target;

/// Returns all targets.
#[must_use]
pub fn targets() -> Vec<Target> {
    vec![review::target(), rule_answer::target(), grpc::target(), pod::target(), resource::target()]
}

#[cfg(test)]
mod tests;
