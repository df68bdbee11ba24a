//! The finalizers of a binding, and the end of the work for it.

use kube::ResourceExt;
use podward_api::discovery_binding::{
    BINDING_FINALIZER, BINDING_FINALIZERS, BINDING_HOOK_FINALIZER, BindingMode,
};

use super::super::{hook, status};
use super::{BindingTask, GUARD_RETRY};
use crate::index::BindingEntry;
use crate::model::Binding;

impl BindingTask {
    /// Ends the work for a binding that is being deleted: when no instance is left.
    pub(super) async fn finish(&mut self, entry: &BindingEntry, binding: &Binding) {
        if self.is_finished(binding) {
            self.end(entry).await;
        }
    }

    /// Removes the hook of a binding that is being deleted, and then its finalizers.
    pub(super) async fn end(&mut self, entry: &BindingEntry) {
        let now = self.shared.index.now();
        if self.is_ended(entry) || now < self.guard_due {
            return;
        }
        self.guard_due = now + GUARD_RETRY;
        if let Some((_, attached)) = self.hook.take() {
            // It would register the hook again.
            attached.abort();
            _ = attached.await;
        }
        let ended = async {
            hook::deregister(&self.shared, &self.key).await.map_err(anyhow::Error::from)?;
            status::remove_finalizers(&self.shared.client, &entry.object).await?;
            anyhow::Ok(())
        };
        match ended.await {
            Ok(()) => self.ended = entry.object.uid(),
            Err(error) => {
                tracing::warn!(binding = %self.key, %error, "could not end the work for a deleted binding; trying again");
            }
        }
    }

    /// Returns whether the hook and the finalizers of a binding that is being deleted were removed.
    pub(super) fn is_ended(&self, entry: &BindingEntry) -> bool {
        self.ended.is_some() && self.ended == entry.object.uid()
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

    /// Adds the finalizers that a binding needs: before anything is registered, and before pods wait for its hook. The watch
    /// returns the binding with them. Returns whether the work may go on: instances that are registered already have to be
    /// renewed, whatever the other finalizer is. `is_usable`: the binding may have instances from now on.
    pub(super) async fn guard(&mut self, entry: &BindingEntry, mode: BindingMode, is_usable: bool) -> bool {
        let wanted = match mode {
            BindingMode::Own if is_usable => &BINDING_FINALIZERS[..],
            BindingMode::Own | BindingMode::Steer => &[BINDING_HOOK_FINALIZER],
        };
        if wanted.iter().all(|name| status::has_finalizer(&entry.object, name)) {
            self.guard_problem = None;
            return true;
        }
        let now = self.shared.index.now();
        if now >= self.guard_due {
            self.guard_due = now + GUARD_RETRY;
            let added = status::add_finalizers(&self.shared.client, &entry.object, wanted).await;
            // After a conflict the watch returns the binding as it is now.
            self.guard_problem = added.err().filter(|error| !error.is_conflict()).map(|error| {
                let problem = format!("could not add the finalizers of the binding; trying again: {error}");
                tracing::warn!(binding = %self.key, problem);
                problem
            });
        }
        self.rejected = self.rejected.take().or_else(|| self.guard_problem.clone());
        mode == BindingMode::Own && status::has_finalizer(&entry.object, BINDING_FINALIZER)
    }
}
