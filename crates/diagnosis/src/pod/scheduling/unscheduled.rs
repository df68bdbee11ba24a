//! A pod that is not scheduled, and what the scheduler says.

use crate::command::Commands;
use crate::snapshot::Snapshot;

use super::clauses::{Clause, SchedulerMessage};

/// The context of the causes of one pod.
#[derive(Debug)]
pub(super) struct Unscheduled<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) commands: Commands<'s>,
    pub(super) message: SchedulerMessage<'s>,
}

impl Unscheduled<'_> {
    /// `all 3 nodes are`, or `2 of 3 nodes are`.
    pub(super) fn of_nodes(&self, clause: &Clause<'_>) -> String {
        match (clause.nodes, self.message.nodes) {
            (1, 1) => "the only node is".to_owned(),
            (some, all) if some >= all => format!("all {all} nodes are"),
            (1, all) => format!("1 of {all} nodes is"),
            (some, all) => format!("{some} of {all} nodes are"),
        }
    }
}
