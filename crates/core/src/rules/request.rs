//! The requests of operations to rules.

use std::collections::BTreeMap;

use crate::model::keys::Stage;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;

/// A stage in which rules are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckStage {
    /// May the operation start?
    PreCheck,
    /// Is its result good?
    PostCheck,
}

impl CheckStage {
    /// Both stages.
    pub const ALL: [CheckStage; 2] = [CheckStage::PreCheck, CheckStage::PostCheck];

    /// Returns the text in resources.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CheckStage::PreCheck => "PreCheck",
            CheckStage::PostCheck => "PostCheck",
        }
    }

    /// Returns the label of the request and the label of the answer.
    const fn labels(self) -> (Stage, Stage) {
        match self {
            CheckStage::PreCheck => (Stage::PreCheck, Stage::PreChecked),
            CheckStage::PostCheck => (Stage::PostCheck, Stage::PostChecked),
        }
    }

    /// Returns the key of the label by which `operation` requests the check.
    #[must_use]
    pub fn label(self, operation: &str) -> String {
        self.labels().0.key(operation)
    }
}

/// An operation in a check. Stage, id and time identify it among all operations of its pod: only Podward writes the
/// time, once for each run of an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckRequest {
    /// The check.
    pub stage: CheckStage,
    /// The id of the operation.
    pub operation: String,
    /// The value of its `pre-check/<id>` or `post-check/<id>`: nanoseconds since the Unix epoch, as text. It changes when a
    /// grant is released ([`asked_again_at`](Self::asked_again_at)).
    pub asked_at: String,
}

impl CheckRequest {
    /// Returns the time of the request in nanoseconds since the Unix epoch. A time that cannot be read sorts last.
    #[must_use]
    pub fn since(&self) -> i64 {
        self.asked_at.parse().unwrap_or(i64::MAX)
    }

    /// Returns the time to store, as text, when the request is made again at `now`. It is another time in the microsecond of
    /// this request, so that waits, deadlines and the questions to hooks ([`UnixNanos::whole_micros`]) stay the same. A time
    /// that is unreadable or in the future becomes `now`.
    #[must_use]
    pub fn asked_again_at(&self, now: UnixNanos) -> String {
        let before = self.asked_at.parse::<i64>().ok().filter(|at| *at < now.0);
        let next = |at: i64| if at.rem_euclid(1_000) == 999 { at.saturating_sub(999) } else { at + 1 };
        UnixNanos(before.map_or(now.0, next)).to_string()
    }
}

/// Returns the operations of a pod with these labels that are in a check, by stage and id.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::Stage;
/// use podward_core::rules::{CheckStage, check_requests};
///
/// let mut labels = BTreeMap::from([
///     (Stage::Operating.key("upgrade"), "7".to_owned()),
///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
/// ]);
/// assert!(check_requests(&labels).is_empty(), "nobody has asked yet");
/// labels.insert(Stage::PreCheck.key("upgrade"), "8".to_owned());
/// let found = check_requests(&labels);
/// assert_eq!((found[0].stage, found[0].since()), (CheckStage::PreCheck, 8));
/// labels.insert(Stage::PreChecked.key("upgrade"), "9".to_owned());
/// assert!(check_requests(&labels).is_empty(), "it was answered");
/// ```
#[must_use]
pub fn check_requests(labels: &BTreeMap<String, String>) -> Vec<CheckRequest> {
    let operations = Operations::parse(labels);
    let mut found = Vec::new();
    for stage in CheckStage::ALL {
        let (asks, answered) = stage.labels();
        for (id, operation) in operations.iter() {
            let is_begun = stage == CheckStage::PostCheck || operation.has(Stage::Operating);
            if !is_begun || operation.has(answered) || operation.known_type().is_none() {
                continue;
            }
            if let Some(asked_at) = labels.get(&asks.key(id)) {
                found.push(CheckRequest { stage, operation: id.to_owned(), asked_at: asked_at.clone() });
            }
        }
    }
    found
}
