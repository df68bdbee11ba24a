//! The next steps of a set.

use super::draft::{Draft, Plan};
use super::pod::SetPod;
use super::set::SetSpec;
use super::{refresh, scale, update};

/// Returns what is done next. `pods` are those of the set that are neither finished nor terminating, each as the API server
/// has stored it after the last write of the set.
#[must_use]
pub fn plan(set: &SetSpec, pods: &[SetPod]) -> Plan {
    let mut draft = Draft::new(set, pods);
    scale::plan(&mut draft);
    update::plan(&mut draft);
    refresh::plan(&mut draft);
    draft.plan.steps = draft.steps.into_iter().flatten().filter(|step| !step.is_empty()).collect();
    draft.plan
}

#[cfg(test)]
pub(super) mod tests;
