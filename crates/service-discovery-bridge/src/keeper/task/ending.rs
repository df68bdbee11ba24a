//! The finalizers of a binding, and the end of the work for it.

use std::sync::Arc;

use kube::ResourceExt;
use podward_api::discovery_binding::{
    BINDING_FINALIZER, BINDING_FINALIZERS, BINDING_HOOK_FINALIZER, BindingMode,
};

use super::super::{hook, status};
use super::{BindingTask, GUARD_RETRY};
use crate::index::BindingEntry;
use crate::model::{Binding, BoundPod, Suspect, Whose};

impl BindingTask {
    /// Ends the work for a binding that is being deleted: when no instance is left.
    pub(super) async fn finish(&mut self, entry: &BindingEntry, binding: &Binding) {
        if self.is_finished(binding) {
            self.end(entry, true).await;
        }
    }

    /// Removes the hook of a binding that is being deleted, and then, if `is_finished`, its finalizers.
    pub(super) async fn end(&mut self, entry: &BindingEntry, is_finished: bool) {
        let now = self.shared.index.now();
        let is_unhooked = self.unhooked.is_some() && self.unhooked == entry.object.uid();
        if self.is_ended(entry) || now < self.guard_due || (is_unhooked && !is_finished) {
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
            if is_finished {
                status::remove_finalizers(&self.shared.client, &entry.object).await?;
            }
            anyhow::Ok(())
        };
        match ended.await {
            Ok(()) if is_finished => self.ended = entry.object.uid(),
            Ok(()) => self.unhooked = entry.object.uid(),
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
    /// if the registry cannot be read, all were deregistered. Applications that register themselves have to be in service.
    pub(super) fn is_finished(&self, binding: &Binding) -> bool {
        let from = self.finish_from.max(self.in_doubt_until);
        let is_compared = self.unreachable.is_none() && self.compared.is_some_and(|at| at >= from);
        self.tracked.is_empty()
            && (binding.mode != BindingMode::Own
                || (is_compared && self.orphans.is_empty() && self.suspect_of(binding).is_none()))
    }

    /// Returns an entry that cannot be read, and may be an instance of the binding, whose pods are not tracked any more.
    fn suspect_of(&self, binding: &Binding) -> Option<&Suspect> {
        if self.suspects.is_empty() {
            return None;
        }
        let (index, namespace) = (&self.shared.index, &self.key.namespace);
        let all = index.pod_uids(namespace).into_iter().filter_map(|uid| index.pod(namespace, &uid));
        let pods: Vec<Arc<BoundPod>> = all.filter(|pod| binding.is_about(pod)).collect();
        self.suspects.iter().find(|suspect| {
            (suspect.is_near && matches!(suspect.whose, Whose::Uid(_)))
                || pods.iter().any(|pod| suspect.may_be_of(&pod.uid, &pod.ip))
        })
    }

    /// Returns why instances that no pod should have are still in the registry. `None` if none is known.
    pub(super) fn remainder(&self, binding: &Binding) -> Option<String> {
        let count = self.orphans.len() + self.tracked.len();
        let remain = || match binding.mode {
            BindingMode::Own => format!(
                "the binding is being deleted; its finalizer stays until the registry shows none of its instances, and {count} are \
                 left"
            ),
            BindingMode::Steer => {
                let pods = self.tracked.values().map(|tracked| (&*tracked.pod.name, tracked.problem()));
                let (first, problem) = pods.min().unwrap_or_default();
                let problem = problem.map(|problem| format!("; {first}: {problem}")).unwrap_or_default();
                format!(
                    "the binding is being deleted; its finalizer stays until the operations on {count} pods have ended, \
                     such as {first}, and their instances are in service again{problem}"
                )
            }
        };
        let waits = || {
            let unread = self.suspect_of(binding).map(|suspect| suspect.problem.clone());
            unread.or_else(|| (count > 0).then(remain))
        };
        self.removal_problem.clone().or_else(|| binding.deleting.then(waits).flatten())
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
        let may_go_on = mode == BindingMode::Own && status::has_finalizer(&entry.object, BINDING_FINALIZER);
        if !may_go_on {
            self.rejected = self.rejected.take().or_else(|| self.guard_problem.clone());
        }
        may_go_on
    }
}
