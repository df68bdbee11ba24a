//! The watch of a registry that can report changes.

use std::sync::Arc;
use std::time::Duration;

use podward_registries::{Registry, ServiceKey};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// The shortest pause between two comparisons because the registry has changed.
const MIN_COMPARISON_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a registry that could not be watched is watched again.
const WATCH_RETRY: Duration = Duration::from_secs(5);

/// The watch of a registry that can report changes. It ends when this is dropped.
pub(crate) struct RegistryWatch {
    registry: Arc<dyn Registry>,
    services: Vec<ServiceKey>,
    task: JoinHandle<()>,
}

impl Drop for RegistryWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RegistryWatch {
    /// Watches `services`, and notifies `changed` when something may have changed in one of them.
    pub(crate) fn start(
        registry: &Arc<dyn Registry>,
        services: Vec<ServiceKey>,
        changed: &Arc<Notify>,
    ) -> Self {
        let (watched, client, changed) = (services.clone(), Arc::clone(registry), Arc::clone(changed));
        let watch = async move {
            loop {
                let pause = match client.changed(0, &watched).await {
                    Ok(()) => {
                        changed.notify_one();
                        MIN_COMPARISON_PAUSE
                    }
                    Err(_) => WATCH_RETRY,
                };
                tokio::time::sleep(pause).await;
            }
        };
        let task = tokio::spawn(watch.in_current_span());
        Self { registry: Arc::clone(registry), services, task }
    }

    /// Returns whether it uses this client. There is another one after a change of the connection or of its Secrets.
    pub(crate) fn uses(&self, registry: &Arc<dyn Registry>) -> bool {
        Arc::ptr_eq(&self.registry, registry)
    }

    /// Returns whether it watches these services.
    pub(crate) fn watches(&self, services: &[ServiceKey]) -> bool {
        self.services == services
    }
}
