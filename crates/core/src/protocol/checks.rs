//! Checks decide when an operation may start and when its result is accepted.

use super::objection::Objection;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The check passes.
    Pass,
    /// The operation waits, for this reason.
    Wait(String),
}

/// Decides whether an operation may start and whether its result is accepted.
///
/// An implementation that knows the pod can also order its operations, for example keep one type waiting while another
/// is active:
///
/// ```
/// use podward_core::{CheckResult, Checks, Objection};
///
/// struct UpdatesFirst {
///     update_is_at_work: bool,
/// }
///
/// impl Checks for UpdatesFirst {
///     fn pre_check(&self, _: &str, operation_type: &str) -> CheckResult {
///         if self.update_is_at_work && operation_type != "update" {
///             return CheckResult::Wait("an update is at work".to_owned());
///         }
///         CheckResult::Pass
///     }
///
///     fn post_check(&self, _: &str, _: &str) -> CheckResult {
///         CheckResult::Pass
///     }
///
///     fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
///         Vec::new()
///     }
/// }
/// ```
pub trait Checks {
    /// Checks whether the operation `id` of `operation_type` may start.
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult;
    /// Checks the result of the operation `id`.
    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult;
    /// Returns the checks that do not accept the result of the operation `id` and report a refusal to its operator.
    /// While one of them refuses, the result is not accepted, whatever [`post_check`](Self::post_check) returns.
    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection>;
}

/// No rules: every check passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

impl Checks for NoRules {
    fn pre_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        CheckResult::Pass
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        Vec::new()
    }
}
