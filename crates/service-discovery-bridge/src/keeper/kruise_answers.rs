//! Answers to the lifecycle protocol of OpenKruise.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{BoundPod, Lifecycle};

/// The answers that were written for the pods of a binding.
#[derive(Debug, Default)]
pub(super) struct KruiseAnswers {
    /// The pods as they were when they were patched, by UID.
    pub(super) written: HashMap<String, Arc<BoundPod>>,
    /// The hooks of the workloads of the pods, as they were last, by the UID of the pod.
    pub(super) hooks: HashMap<String, Arc<Lifecycle>>,
    /// The reasons that were logged why a pod gets no answer, by UID.
    pub(super) refused: HashMap<String, String>,
    /// When an answer may be due next.
    pub(super) due: Option<Duration>,
}
