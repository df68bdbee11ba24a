//! The operations that a pod's labels describe.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::keys::{self, Key, Stage};
use super::label_changes::LabelChanges;
use super::lost_type::LostType;
use super::time::UnixNanos;

/// The type of an operation whose type label is lost.
pub const UNKNOWN_TYPE: &str = "unknown";

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stages(u16);

impl Stages {
    const fn bit(stage: Stage) -> u16 {
        1 << stage as u16
    }

    const fn of(stages: &[Stage]) -> Stages {
        let mut bits = 0;
        let mut i = 0;
        while i < stages.len() {
            bits |= Stages::bit(stages[i]);
            i += 1;
        }
        Stages(bits)
    }

    const OURS: Stages = Stages::of(&Stage::OURS);
}

/// One operation: the labels of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation<'a> {
    stages: Stages,
    operation_type: Option<Cow<'a, str>>,
    done_type: Option<Cow<'a, str>>,
}

impl<'a> Operation<'a> {
    /// Returns whether the label of `stage` is present.
    #[must_use]
    pub fn has(&self, stage: Stage) -> bool {
        self.stages.0 & Stages::bit(stage) != 0
    }

    /// Returns whether the label of any of `stages` is present.
    #[must_use]
    pub fn has_any(&self, stages: &[Stage]) -> bool {
        self.stages.0 & Stages::of(stages).0 != 0
    }

    /// Returns the type that the operator set, or the type that was kept when the operation finished. `None` when there
    /// is no type or it is empty.
    #[must_use]
    pub fn known_type(&self) -> Option<&str> {
        self.operation_type.as_deref().or(self.done_type.as_deref()).filter(|value| !value.is_empty())
    }

    /// Returns whether only one of `operating` and `operation-type` is present and nothing was granted. Such an
    /// operation does not count.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        let has_type = self.operation_type.as_deref().is_some_and(|value| !value.is_empty());
        !self.has_started() && self.has(Stage::Operating) != has_type
    }

    /// Returns whether the operation was allowed to start, or is checked again while the pod stays out of service. True
    /// until its labels are removed. The pod neither leaves service nor stays out of it for an operation that has not
    /// started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.has_any(&[Stage::PreChecked, Stage::Preparing, Stage::Operate, Stage::Operated])
    }

    /// Returns whether the operation has started and its operator has not finished.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.has(Stage::Operating) && self.has_started()
    }

    /// Returns whether the operator works or waits for its permission.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.has(Stage::Operating) && !self.is_incomplete()
    }

    /// Returns whether the operator has finished and the result is not accepted yet.
    #[must_use]
    pub fn awaits_judgement(&self) -> bool {
        self.has(Stage::Operated) && !self.has_any(&[Stage::Operating, Stage::PostChecked, Stage::Completing])
    }

    /// Returns whether the operation is active in the protocol. A lone `operation-type` or a lone `operating` is not.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.is_incomplete() && (self.has(Stage::Operating) || self.has_ours())
    }

    /// Returns whether the operation has a permission whose type its own labels do not contain.
    pub(crate) fn has_lost_type(&self) -> bool {
        self.known_type().is_none() && self.has_any(&[Stage::PreChecked, Stage::Preparing, Stage::Operate])
    }

    pub(crate) fn has_ours(&self) -> bool {
        self.stages.0 & Stages::OURS.0 != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stages.0 == 0
    }

    pub(crate) fn put(&mut self, stage: Stage) {
        self.stages.0 |= Stages::bit(stage);
    }

    pub(crate) fn take(&mut self, stages: &[Stage]) {
        self.stages.0 &= !Stages::of(stages).0;
        if !self.has(Stage::OperationType) {
            self.operation_type = None;
        }
        if !self.has(Stage::DoneOperationType) {
            self.done_type = None;
        }
    }

    pub(crate) fn put_done_type(&mut self, value: Cow<'a, str>) {
        self.put(Stage::DoneOperationType);
        self.done_type = Some(value);
    }

    /// Sets the type of an operation whose operator has set none.
    pub(crate) fn keep_type(&mut self, known: Option<Cow<'a, str>>) {
        if let Some(known) = known.filter(|_| self.known_type().is_none()) {
            self.put(Stage::OperationType);
            self.operation_type = Some(known);
        }
    }

    fn value(&self, stage: Stage, now: UnixNanos) -> String {
        let kept = match stage {
            Stage::OperationType => &self.operation_type,
            Stage::DoneOperationType => &self.done_type,
            _ => &None,
        };
        kept.as_deref().map_or_else(|| now.to_string(), ToOwned::to_owned)
    }
}

/// The labels of a pod that belong to the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations<'a> {
    pub(crate) by_id: BTreeMap<&'a str, Operation<'a>>,
    pub(crate) permissions: BTreeSet<Cow<'a, str>>,
    pub(crate) service_available: bool,
    /// The type of the operations whose type label is lost, according to the labels that were read. Code that changes
    /// the operations computes it again with [`Operations::lost_type`].
    parsed_lost_type: Option<Cow<'a, str>>,
}

impl<'a> Operations<'a> {
    /// Reads labels. Labels outside the protocol, and labels without an id, are ignored.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use podward_core::keys::Stage;
    /// use podward_core::{Operations, OperationPhase};
    ///
    /// let labels = BTreeMap::from([
    ///     (Stage::Operating.key("upgrade"), "1700000000000000000".to_owned()),
    ///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
    ///     ("app".to_owned(), "web".to_owned()),
    /// ]);
    /// let operations = Operations::parse(&labels);
    /// let upgrade = operations.get("upgrade").unwrap();
    /// assert_eq!(upgrade.known_type(), Some("update"));
    /// assert_eq!(OperationPhase::of(upgrade), Some(OperationPhase::PreChecking));
    /// assert!(operations.any_live() && !upgrade.has_started());
    /// ```
    #[must_use]
    pub fn parse(labels: &'a BTreeMap<String, String>) -> Self {
        let mut parsed = Operations::default();
        for (key, value) in labels {
            match Key::parse(key) {
                Key::Stage(stage, id) => {
                    let operation = parsed.by_id.entry(id).or_default();
                    operation.put(stage);
                    match stage {
                        Stage::OperationType => operation.operation_type = Some(Cow::Borrowed(value)),
                        Stage::DoneOperationType => operation.done_type = Some(Cow::Borrowed(value)),
                        _ => {}
                    }
                }
                Key::Permission(operation_type) => {
                    parsed.permissions.insert(Cow::Borrowed(operation_type));
                }
                Key::ServiceAvailable => parsed.service_available = true,
                Key::Malformed | Key::Other => {}
            }
        }
        if parsed.by_id.values().any(Operation::has_lost_type) {
            parsed.parsed_lost_type = parsed.lost_type().get().cloned();
        }
        parsed
    }

    /// Returns the operations in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &Operation<'a>)> {
        self.by_id.iter().map(|(id, operation)| (*id, operation))
    }

    /// Returns the operation `id`.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Operation<'a>> {
        self.by_id.get(id)
    }

    /// Returns whether `operation-permission/<type>` is present.
    #[must_use]
    pub fn permits(&self, operation_type: &str) -> bool {
        self.permissions.contains(operation_type)
    }

    /// Returns whether `service-available` is present.
    #[must_use]
    pub fn is_service_available(&self) -> bool {
        self.service_available
    }

    /// Returns whether any operation is active in the protocol.
    #[must_use]
    pub fn any_live(&self) -> bool {
        self.by_id.values().any(Operation::is_live)
    }

    /// Returns the type of `id`. When its label is gone, this is the only permission that no other operation claims, or
    /// the only permission. Returns `None` when the type cannot be determined.
    #[must_use]
    pub fn type_of(&self, id: &str) -> Option<Cow<'a, str>> {
        let operation = self.by_id.get(id)?;
        if let Some(known) = operation.known_type() {
            return Some(Cow::Owned(known.to_owned()));
        }
        if operation.has_lost_type() { self.parsed_lost_type.clone() } else { None }
    }

    /// Computes the type of the operations whose type label is lost. Do it once for all of them.
    pub(crate) fn lost_type(&self) -> LostType<'a> {
        LostType::new(&self.permissions, self.by_id.values().filter_map(Operation::known_type))
    }

    /// Returns the type of `id` as in [`type_of`](Self::type_of), or [`UNKNOWN_TYPE`].
    #[must_use]
    pub fn type_name(&self, id: &str) -> String {
        self.type_of(id).map_or_else(|| UNKNOWN_TYPE.to_owned(), Cow::into_owned)
    }

    /// Returns the label changes that turn `self` into `goal`. New timestamps have the value `now`.
    #[must_use]
    pub fn changes_to(&self, goal: &Operations<'a>, now: UnixNanos) -> LabelChanges {
        let mut changes = LabelChanges::default();
        let none = Operation::default();
        let ids: BTreeSet<&str> = self.by_id.keys().chain(goal.by_id.keys()).copied().collect();
        for id in ids {
            let from = self.by_id.get(id).unwrap_or(&none);
            let to = goal.by_id.get(id).unwrap_or(&none);
            if from == to {
                continue;
            }
            for stage in Stage::ALL {
                match (from.has(stage), to.has(stage)) {
                    (false, true) => {
                        changes.set.insert(stage.key(id), to.value(stage, now));
                    }
                    (true, false) => {
                        changes.remove.insert(stage.key(id));
                    }
                    (true, true) if from.value(stage, now) != to.value(stage, now) => {
                        changes.set.insert(stage.key(id), to.value(stage, now));
                    }
                    _ => {}
                }
            }
        }
        for gone in self.permissions.difference(&goal.permissions) {
            changes.remove.insert(keys::permission_key(gone));
        }
        for new in goal.permissions.difference(&self.permissions) {
            changes.set.insert(keys::permission_key(new), now.to_string());
        }
        match (self.service_available, goal.service_available) {
            (false, true) => {
                changes.set.insert(keys::SERVICE_AVAILABLE.to_owned(), now.to_string());
            }
            (true, false) => {
                changes.remove.insert(keys::SERVICE_AVAILABLE.to_owned());
            }
            _ => {}
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(entries: &[(String, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| (key.clone(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_lone_half_is_not_an_operation() {
        let lone_type = labels(&[(Stage::OperationType.key("a"), "update")]);
        let parsed = Operations::parse(&lone_type);
        assert!(!parsed.any_live());
        let lone_begin = labels(&[(Stage::Operating.key("a"), "1"), (Stage::PreCheck.key("a"), "1")]);
        let parsed = Operations::parse(&lone_begin);
        assert!(!parsed.any_live());
        let empty_type = labels(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "")]);
        assert!(Operations::parse(&empty_type).get("a").unwrap().is_incomplete());
    }

    #[test]
    fn a_lost_type_is_found_by_its_permission() {
        let pod = labels(&[
            (Stage::Operate.key("a"), "1"),
            (Stage::Operate.key("b"), "1"),
            (Stage::OperationType.key("b"), "restart"),
            (keys::permission_key("update"), "1"),
            (keys::permission_key("restart"), "1"),
        ]);
        assert_eq!(Operations::parse(&pod).type_of("a").as_deref(), Some("update"));
        assert_eq!(Operations::parse(&pod).type_of("b").as_deref(), Some("restart"));
    }

    #[test]
    fn changes_lead_from_one_to_the_other() {
        let before = labels(&[(Stage::Operating.key("a"), "1"), (Stage::OperationType.key("a"), "update")]);
        let from = Operations::parse(&before);
        let mut to = from.clone();
        let operation = to.by_id.get_mut("a").unwrap();
        operation.take(&[Stage::OperationType]);
        operation.put_done_type(Cow::Borrowed("update"));
        let changes = from.changes_to(&to, UnixNanos(7));
        assert_eq!(changes.set, BTreeMap::from([(Stage::DoneOperationType.key("a"), "update".to_owned())]));
        assert_eq!(changes.remove, BTreeSet::from([Stage::OperationType.key("a")]));
    }
}
