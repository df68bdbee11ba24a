//! The finalizer of a binding, and the end of the work for it.

use podward_api::discovery_binding::BindingMode;
use podward_runtime::retry::ApiCallError;

use super::super::{hook, status};
use super::BindingTask;
use crate::index::BindingEntry;
use crate::model::Binding;

impl BindingTask {
    /// Ends the work for a binding that is being deleted: when no instance is left, its hook and its finalizer go.
    pub(super) async fn finish(&self, entry: &BindingEntry, binding: &Binding) {
        if !self.is_finished(binding) {
            return;
        }
        let ended = async {
            hook::deregister(&self.shared, &self.key).await.map_err(anyhow::Error::from)?;
            status::set_finalizer(&self.shared.client, &entry.object, false).await?;
            anyhow::Ok(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(binding = %self.key, %error, "could not end the work for a deleted binding; trying again");
        }
    }

    /// Returns whether the registry has no instance of a binding that is being deleted: a comparison has found none since, or,
    /// if the registry cannot be read, all were deregistered.
    pub(super) fn is_finished(&self, binding: &Binding) -> bool {
        let is_compared =
            self.unreachable.is_none() && self.compared.is_some_and(|at| at >= self.finish_from);
        binding.mode != BindingMode::Own
            || (is_compared && self.orphans.is_empty() && self.tracked.is_empty())
    }

    /// Returns why instances that no pod should have are still in the registry. `None` if none is known.
    pub(super) fn remainder(&self, binding: &Binding) -> Option<String> {
        let count = self.orphans.len() + self.tracked.len();
        let remain = || {
            format!(
                "the binding is being deleted; its finalizer stays until the registry shows none of its instances, and {count} are \
                 left"
            )
        };
        self.removal_problem.clone().or_else(|| (binding.deleting && count > 0).then(remain))
    }

    /// Adds the finalizer before anything is registered.
    pub(super) async fn guard(&self, entry: &BindingEntry, binding: &Binding) -> Result<(), ApiCallError> {
        match binding.mode {
            BindingMode::Own => status::set_finalizer(&self.shared.client, &entry.object, true).await,
            BindingMode::Steer => Ok(()),
        }
    }
}
