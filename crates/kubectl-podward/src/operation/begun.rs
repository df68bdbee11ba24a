//! Which operation it is, and on which pod: another may have the same id and the same name later.

use anyhow::{Result, ensure};
use podward_core::Pod;
use podward_core::keys::Stage;

/// An operation that a command line has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    id: String,
    /// The uid of its pod.
    uid: String,
    /// The value of the label `operating` of the operation: the time at which it was announced, in nanoseconds.
    at: Option<String>,
}

impl Begun {
    /// Returns the operation `id` of a pod.
    pub(crate) fn of(pod: &Pod, id: &str) -> Self {
        Self { id: id.to_owned(), uid: pod.metadata.uid.clone(), at: at(pod, id) }
    }

    /// Returns whether the operation was announced with this value.
    pub(crate) fn is_at(&self, value: &str) -> bool {
        self.at.as_deref() == Some(value)
    }

    /// Returns the uid of the pod.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Requires that `pod` is the same one, and that no other operation has the id. `name` is that of the pod.
    ///
    /// # Errors
    /// When the operation has ended with its pod, or another one with its id has begun.
    pub(crate) fn is_on(&self, pod: &Pod, name: &str) -> Result<()> {
        let id = &self.id;
        ensure!(pod.metadata.uid == self.uid, "operation {id} has ended: pod {name} is another pod now");
        ensure!(
            at(pod, id).is_none_or(|at| self.is_at(&at)),
            "operation {id} of pod {name} has ended, and another one with this id has begun"
        );
        Ok(())
    }
}

fn at(pod: &Pod, id: &str) -> Option<String> {
    pod.view().labels.get(&Stage::Operating.key(id)).cloned()
}
