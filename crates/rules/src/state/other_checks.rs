//! The results of other checks than rules.

use podward_core::hooks::HookPhase;
use podward_core::rules::{CheckRequest, CheckStage, OtherChecks};
use podward_core::{CheckResult, Checks, Operations, PodPlan};

/// Returns whether a check other than rules refuses `request`: a hook that `plan` waits for, or `outside`.
pub(crate) fn other_checks(
    request: &CheckRequest,
    operations: &Operations<'_>,
    plan: &PodPlan,
    outside: &dyn Checks,
) -> OtherChecks {
    let id = &request.operation;
    let operation_type = operations.type_of(id).unwrap_or_default();
    let (phase, result) = match request.stage {
        CheckStage::PreCheck => (HookPhase::PreCheck, outside.pre_check(id, &operation_type)),
        CheckStage::PostCheck => (HookPhase::PostCheck, outside.post_check(id, &operation_type)),
    };
    let is_operation = |(other, _): &(String, String)| other == id;
    let is_hook_open = plan
        .open
        .iter()
        .any(|open| open.question.phase == phase && open.question.operations.iter().any(is_operation));
    if is_hook_open || result != CheckResult::Pass { OtherChecks::Refuse } else { OtherChecks::Agree }
}
