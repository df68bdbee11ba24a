//! Refused results of operations, and how they are stored on the pod; see [`crate::refusals`].

use std::collections::BTreeMap;

use crate::hooks::hook::{Hook, HookPhase};
use crate::model::keys::Stage;
use crate::model::operations::{Operation, UNKNOWN_TYPE};
use crate::protocol::checks::Checks;
use crate::protocol::objection::{Objection, PostCheckRejection};

use super::round::HookRound;

/// The answers of hooks in a check, by operation.
#[derive(Debug, Default)]
pub(crate) struct CheckAnswers {
    /// The hooks that the operation waits for.
    pub(crate) waiting: BTreeMap<String, String>,
    /// The objections that are reported to the operator.
    pub(crate) objections: BTreeMap<String, Vec<Objection>>,
}

impl CheckAnswers {
    /// Records that `hook` does not accept the results of `operations`: for this reason, or because it has not
    /// answered.
    pub(crate) fn object(
        &mut self,
        phase: HookPhase,
        hook: &Hook,
        operations: &[(String, String)],
        reason: Option<String>,
    ) {
        if phase != HookPhase::PostCheck || hook.post_check_rejection != PostCheckRejection::Rollback {
            return;
        }
        for (id, _) in operations {
            let objection = Objection { by: Objection::name_of_hook(&hook.name), reason: reason.clone() };
            self.objections.entry(id.clone()).or_default().push(objection);
        }
    }
}

impl HookRound<'_> {
    /// Stores on the pod which checks refuse the results, and sets or removes the label that tells their operators.
    pub(crate) fn refuse(&mut self, checks: &dyn Checks) {
        let operations = self.draft.operations();
        let judged = operations.iter().filter(|(_, operation)| operation.awaits_judgement());
        let type_of = |operation: &Operation<'_>| operation.known_type().unwrap_or(UNKNOWN_TYPE).to_owned();
        let judged: BTreeMap<String, String> =
            judged.map(|(id, operation)| (id.to_owned(), type_of(operation))).collect();
        self.draft.refusals.retain(|id| judged.contains_key(id));
        for (id, operation_type) in judged {
            let refused_since =
                self.draft.refusals.update(&id, checks.objections(&id, &operation_type), self.now);
            let label = Stage::Rollback.key(&id);
            match refused_since {
                Some(since) => drop(self.draft.labels.entry(label).or_insert_with(|| since.to_string())),
                None => drop(self.draft.labels.remove(&label)),
            }
        }
    }
}
