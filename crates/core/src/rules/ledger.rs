//! The ledger: which pods were given room, and may not show it yet.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::{Asking, CheckStage};

/// The ledger of one rule object may have so many bytes as JSON; whoever finds no place waits, and entries go quickly: each stands only
/// until its pod has been let through. It holds some 150 of the longest entries there can be, and 400 usual ones.
pub const GRANTS_LIMIT: usize = 64 * 1024;

// As the resource's schema has it.
/// Room in the object's budgets that was given to a pod, until the pod has been let through. Podward's: it is written before, so that no
/// budget is overdrawn whoever decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The pod.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// The stage that it is in.
    pub stage: String,
    /// The id of the operation.
    pub operation: String,
    /// When the operation asked: nanoseconds since the Unix epoch, which tell it from an earlier one with this id.
    pub asked_at: String,
}

impl Grant {
    pub(super) fn new(pod: &str, uid: &str, asking: &Asking) -> Self {
        Grant {
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            stage: asking.stage.as_str().to_owned(),
            operation: asking.operation.clone(),
            asked_at: asking.asked_at.clone(),
        }
    }

    /// Whether it was given to `asking` of the pod `uid`.
    #[must_use]
    pub fn is_for(&self, uid: &str, asking: &Asking) -> bool {
        self.uid == uid
            && self.asked_at == asking.asked_at
            && self.operation == asking.operation
            && self.stage == asking.stage.as_str()
    }

    /// The asking that it was given to; `None` for one of a stage that isn't known.
    #[must_use]
    pub fn asking(&self) -> Option<Asking> {
        let stage = CheckStage::ALL.into_iter().find(|stage| stage.as_str() == self.stage)?;
        Some(Asking { stage, operation: self.operation.clone(), asked_at: self.asked_at.clone() })
    }

    /// What it takes as JSON.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(GRANTS_LIMIT, |text| text.len() + 1)
    }
}

/// The grants of one rule object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    holder: String,
    grants: Vec<Grant>,
    /// Places of grants, by the pod's UID: they are looked for once for each pod that asks.
    by_uid: HashMap<String, Vec<usize>>,
}

impl Ledger {
    /// The ledger that `holder` wrote.
    #[must_use]
    pub fn new(holder: impl Into<String>, grants: Vec<Grant>) -> Self {
        let mut by_uid: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, grant) in grants.iter().enumerate() {
            by_uid.entry(grant.uid.clone()).or_default().push(place);
        }
        Ledger { holder: holder.into(), grants, by_uid }
    }

    /// Who wrote it: a name that no other process has, nor the same process another time that it leads. Empty while nobody has.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// What was given, in that order.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether `asking` of the pod `uid` was given room.
    #[must_use]
    pub fn has(&self, uid: &str, asking: &Asking) -> bool {
        self.of_pod(uid).any(|grant| grant.is_for(uid, asking))
    }

    /// How many of these grants `before` doesn't have.
    #[must_use]
    pub fn given_since(&self, before: &Ledger) -> usize {
        let is_new = |grant: &&Grant| !before.of_pod(&grant.uid).any(|known| known == *grant);
        self.grants.iter().filter(is_new).count()
    }

    fn of_pod(&self, uid: &str) -> impl Iterator<Item = &Grant> {
        self.by_uid.get(uid).into_iter().flatten().map(|place| &self.grants[*place])
    }
}
