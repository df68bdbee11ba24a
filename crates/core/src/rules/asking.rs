//! Who asks.

use std::collections::BTreeMap;

use crate::keys::Stage;
use crate::operations::Operations;

/// A stage in which rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckStage {
    /// May the operation start?
    PreCheck,
    /// Is its result good?
    PostCheck,
}

impl CheckStage {
    /// Both.
    pub const ALL: [CheckStage; 2] = [CheckStage::PreCheck, CheckStage::PostCheck];

    /// The wire's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CheckStage::PreCheck => "PreCheck",
            CheckStage::PostCheck => "PostCheck",
        }
    }

    /// The label that asks, and the one that says that it was answered.
    const fn labels(self) -> (Stage, Stage) {
        match self {
            CheckStage::PreCheck => (Stage::PreCheck, Stage::PreChecked),
            CheckStage::PostCheck => (Stage::PostCheck, Stage::PostChecked),
        }
    }

    /// The key of the label by which `operation` asks.
    #[must_use]
    pub fn label(self, operation: &str) -> String {
        self.labels().0.key(operation)
    }
}

/// An operation that is in a check. Stage, id and the time that it began to ask at tell it from every other one of its pod, past and
/// future: Podward writes that time once for each run of an operation, and only Podward may.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asking {
    /// The check.
    pub stage: CheckStage,
    /// The id of the operation.
    pub operation: String,
    /// The value of its `pre-check/<id>` or `post-check/<id>`: nanoseconds since the Unix epoch, as text.
    pub asked_at: String,
}

impl Asking {
    /// When it began to ask, in nanoseconds since the Unix epoch. What can't be read comes after all others.
    #[must_use]
    pub fn since(&self) -> i64 {
        self.asked_at.parse().unwrap_or(i64::MAX)
    }
}

/// The operations that a pod with these labels asks for, by stage and id.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::keys::Stage;
/// use podward_core::rules::{CheckStage, askings};
///
/// let mut labels = BTreeMap::from([
///     (Stage::Operating.key("upgrade"), "7".to_owned()),
///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
/// ]);
/// assert!(askings(&labels).is_empty(), "nobody has asked yet");
/// labels.insert(Stage::PreCheck.key("upgrade"), "8".to_owned());
/// let found = askings(&labels);
/// assert_eq!((found[0].stage, found[0].since()), (CheckStage::PreCheck, 8));
/// labels.insert(Stage::PreChecked.key("upgrade"), "9".to_owned());
/// assert!(askings(&labels).is_empty(), "it was answered");
/// ```
#[must_use]
pub fn askings(labels: &BTreeMap<String, String>) -> Vec<Asking> {
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
                found.push(Asking { stage, operation: id.to_owned(), asked_at: asked_at.clone() });
            }
        }
    }
    found
}
