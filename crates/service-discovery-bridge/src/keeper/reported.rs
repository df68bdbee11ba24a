//! The events that were sent.

use std::collections::HashMap;

use crate::model::BindingEvents;

/// What was reported.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// `None` until the first report.
    pub(super) binding: Option<BindingEvents>,
    /// The id of the question that was reported last, by the UID of its pod.
    pub(super) questions: HashMap<String, String>,
}
