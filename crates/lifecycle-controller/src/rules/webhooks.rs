//! Webhook rules.

use std::sync::Weak;

use kube::Client;
use podward_api::pod_transition_rule::{RuleState, TransitionRule};
use podward_core::rules::{Answer, Asking};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::state::{Known, Record};

/// Who asks webhooks.
pub(super) struct RuleWebhooks;

impl RuleWebhooks {
    pub(super) fn new(_: Client, _: Weak<Shared>, _: CancellationToken) -> Self {
        RuleWebhooks
    }

    /// What the webhook of `rule` says to `subjects`, in step with them; and what is to be put on record.
    pub(super) fn consult(
        &self,
        record: &Record,
        rule: &TransitionRule,
        subjects: &[(&Known, &Asking)],
    ) -> (Vec<Option<Answer>>, Option<RuleState>) {
        let _ = (record, rule);
        (vec![None; subjects.len()], None)
    }

    /// Only these rules of an object are left.
    pub(super) fn keep(&self, _: &str, _: &str, _: &[String]) {}

    pub(super) async fn stopped(&self) {}
}
