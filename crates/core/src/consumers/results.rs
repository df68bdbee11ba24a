//! What is said of results, and what is put on the pod of it; see [`crate::refusals`].

use std::collections::BTreeMap;

use crate::hooks::{Hook, Phase};
use crate::keys::Stage;
use crate::operations::{Operation, UNKNOWN_TYPE};
use crate::plan::Checks;
use crate::refusals::{Objection, PostCheckRejection};

use super::round::Round;

/// What hooks have said in a check, by operation.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// All who are waited for.
    pub(crate) waiting: BTreeMap<String, String>,
    /// Those of whose refusal the operator is told.
    pub(crate) objections: BTreeMap<String, Vec<Objection>>,
}

impl Heard {
    /// `hook` doesn't accept the results of `operations`: because it says no, for this reason, or because it says nothing.
    pub(crate) fn object(
        &mut self,
        phase: Phase,
        hook: &Hook,
        operations: &[(String, String)],
        reason: Option<String>,
    ) {
        if phase != Phase::PostCheck || hook.post_check_rejection != PostCheckRejection::Rollback {
            return;
        }
        for (id, _) in operations {
            let objection = Objection { by: Objection::name_of_hook(&hook.name), reason: reason.clone() };
            self.objections.entry(id.clone()).or_default().push(objection);
        }
    }
}

impl Round<'_> {
    /// Puts on the pod who refuses the results that wait to be judged, and tells their operators by the label.
    pub(crate) fn refuse(&mut self, checks: &dyn Checks) {
        let operations = self.draft.operations();
        let judged = operations.iter().filter(|(_, operation)| operation.awaits_judgement());
        let type_of = |operation: &Operation<'_>| operation.known_type().unwrap_or(UNKNOWN_TYPE).to_owned();
        let judged: Vec<(String, String)> =
            judged.map(|(id, operation)| (id.to_owned(), type_of(operation))).collect();
        self.draft.refusals.retain(|id| judged.iter().any(|(other, _)| other == id));
        for (id, operation_type) in judged {
            let refused_since =
                self.draft.refusals.hear(&id, checks.objections(&id, &operation_type), self.now);
            let label = Stage::Rollback.key(&id);
            match refused_since {
                Some(since) => drop(self.draft.labels.entry(label).or_insert_with(|| since.to_string())),
                None => drop(self.draft.labels.remove(&label)),
            }
        }
    }
}
