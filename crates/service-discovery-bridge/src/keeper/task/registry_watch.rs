//! The watch of a registry that can report changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use podward_registries::{Registry, ServiceKey};
use tokio::task::JoinHandle;

use super::BindingTask;
use crate::sync::RegistryAccess;

/// The shortest pause between two comparisons because the registry has changed.
const MIN_COMPARISON_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a registry that could not be watched is watched again.
const WATCH_RETRY: Duration = Duration::from_secs(5);

/// The watch of a registry that can report changes.
pub(super) struct RegistryWatch {
    registry: Arc<dyn Registry>,
    services: Vec<ServiceKey>,
    task: JoinHandle<()>,
}

impl Drop for RegistryWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BindingTask {
    /// Has changes of the services reported by registries that can.
    pub(super) fn watch_registry(&mut self, access: &RegistryAccess) {
        if !access.registry.can_read() {
            return;
        }
        // The client is another one after a change of the connection or of its Secrets.
        let is_current = |watch: &RegistryWatch| Arc::ptr_eq(&watch.registry, &access.registry);
        if !std::mem::take(&mut self.services_due) && self.registry_watch.as_ref().is_some_and(is_current) {
            return;
        }
        let services: BTreeSet<&ServiceKey> =
            self.tracked.values().filter_map(|tracked| tracked.service.as_ref().ok()).collect();
        let services: Vec<ServiceKey> = services.into_iter().cloned().collect();
        if self.registry_watch.as_ref().is_some_and(|watch| is_current(watch) && watch.services == services) {
            return;
        }
        let (registry, notify) = (Arc::clone(&access.registry), Arc::clone(&self.registry_changed));
        let watched = services.clone();
        let task = tokio::spawn(async move {
            loop {
                let pause = match registry.changed(0, &watched).await {
                    Ok(()) => {
                        notify.notify_one();
                        MIN_COMPARISON_PAUSE
                    }
                    Err(_) => WATCH_RETRY,
                };
                tokio::time::sleep(pause).await;
            }
        });
        let registry = Arc::clone(&access.registry);
        self.registry_watch = Some(RegistryWatch { registry, services, task });
    }
}
