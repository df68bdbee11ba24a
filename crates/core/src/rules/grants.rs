//! Grants: the pods that got room in a budget and may not show it yet.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{CheckRequest, CheckStage};

/// The size limit of the grants of one rule object, in bytes of JSON. When it is reached, pods wait. A grant is
/// short-lived: it stays until its pod has continued. The limit holds about 150 grants of maximum size, or 400 usual
/// ones.
pub const GRANTS_LIMIT: usize = 64 * 1024;

// The comments are also the descriptions in the CRD.
/// Room in the budgets of the object that is granted to a pod until the pod continues. Podward writes the grant before
/// the pod continues, so that no budget is overdrawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The stage of the check.
    pub stage: String,
    /// The id of the operation.
    pub operation: String,
    /// The time of the request in nanoseconds since the Unix epoch. It identifies the run of the operation.
    pub asked_at: String,
}

impl Grant {
    pub(super) fn new(pod: &str, uid: &str, check_request: &CheckRequest) -> Self {
        Grant {
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            stage: check_request.stage.as_str().to_owned(),
            operation: check_request.operation.clone(),
            asked_at: check_request.asked_at.clone(),
        }
    }

    /// Returns whether the grant belongs to the request `check_request` of the pod `uid`.
    #[must_use]
    pub fn is_for(&self, uid: &str, check_request: &CheckRequest) -> bool {
        self.uid == uid
            && self.asked_at == check_request.asked_at
            && self.operation == check_request.operation
            && self.stage == check_request.stage.as_str()
    }

    /// Returns the request of the grant, or `None` when its stage is unknown.
    #[must_use]
    pub fn check_request(&self) -> Option<CheckRequest> {
        let stage = CheckStage::ALL.into_iter().find(|stage| stage.as_str() == self.stage)?;
        Some(CheckRequest { stage, operation: self.operation.clone(), asked_at: self.asked_at.clone() })
    }

    /// Returns the size as JSON in bytes.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(GRANTS_LIMIT, |text| text.len() + 1)
    }
}

/// The grants of one rule object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    holder: String,
    grants: Vec<Grant>,
    /// The indexes of grants by the UID of the pod, for the lookup by pod.
    by_uid: HashMap<String, Vec<usize>>,
}

impl Grants {
    /// Returns the grants that `holder` wrote.
    #[must_use]
    pub fn new(holder: impl Into<String>, grants: Vec<Grant>) -> Self {
        let mut by_uid: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, grant) in grants.iter().enumerate() {
            by_uid.entry(grant.uid.clone()).or_default().push(place);
        }
        Grants { holder: holder.into(), grants, by_uid }
    }

    /// Returns the process that wrote the grants. The name is unique for each term of leadership. Empty when none was
    /// written.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the grants in the order in which they were granted.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns whether the request `check_request` of the pod `uid` has a grant.
    #[must_use]
    pub fn has(&self, uid: &str, check_request: &CheckRequest) -> bool {
        self.of_pod(uid).any(|grant| grant.is_for(uid, check_request))
    }

    /// Returns the number of these grants that are not in `before`.
    #[must_use]
    pub fn given_since(&self, before: &Grants) -> usize {
        let is_new = |grant: &&Grant| !before.of_pod(&grant.uid).any(|known| known == *grant);
        self.grants.iter().filter(is_new).count()
    }

    fn of_pod(&self, uid: &str) -> impl Iterator<Item = &Grant> {
        self.by_uid.get(uid).into_iter().flatten().map(|place| &self.grants[*place])
    }
}
