//! What a client has done with the services.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::instance::{Instance, ServiceKey};
use crate::registry::Change;

use super::found::key_of;

/// Nacos 2 makes its lists 500 ms after a change (`pushTaskDelay`).
pub(super) const LIST_LAG: Duration = Duration::from_secs(1);
/// A service of which nothing was changed just now is forgotten if there are more than this: they may have the names of pods.
const MAX_SERVICES: usize = 1_000;

/// What a client has done with the services.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<ServiceKey, Service>>);

#[derive(Debug, Default)]
struct Service {
    /// When an instance was changed last, for those that lists may show as they were before: by IP, port and cluster.
    changed: HashMap<(String, u16, String), Instant>,
    /// The clusters whose health checker was switched off.
    unchecked: BTreeSet<String>,
}

impl Written {
    /// Returns the time until lists show the last changes of these instances by this client. `None` if they do.
    pub(super) fn until_listed(&self, service: &ServiceKey, instances: &[&Instance]) -> Option<Duration> {
        let services = self.0.lock();
        let changed = &services.get(service)?.changed;
        let last = instances.iter().filter_map(|instance| changed.get(&owned_key(instance))).max()?;
        LIST_LAG.checked_sub(last.elapsed())
    }

    /// Notes that instances were changed now.
    pub(super) fn note_changes(&self, changes: &[Change]) {
        let now = Instant::now();
        let mut services = self.0.lock();
        for change in changes {
            let (service, instance) = change.target();
            services.entry(service.clone()).or_default().changed.insert(owned_key(instance), now);
        }
        let is_new = |at: &Instant| now.duration_since(*at) < LIST_LAG;
        let changed: HashSet<&ServiceKey> = changes.iter().map(|change| change.target().0).collect();
        for service in changed {
            if let Some(service) = services.get_mut(service) {
                service.changed.retain(|_, at| is_new(at));
            }
        }
        if services.len() > MAX_SERVICES {
            services.retain(|_, service| service.changed.values().any(is_new));
        }
    }

    /// Returns whether this client has switched off the health checker of a cluster. It may have forgotten it.
    pub(super) fn is_unchecked(&self, service: &ServiceKey, cluster: &str) -> bool {
        self.0.lock().get(service).is_some_and(|service| service.unchecked.contains(cluster))
    }

    /// Notes that the health checker of a cluster was switched off.
    pub(super) fn note_unchecked(&self, service: &ServiceKey, cluster: String) {
        self.0.lock().entry(service.clone()).or_default().unchecked.insert(cluster);
    }

    /// Returns the clusters of a service in which this client has registered instances. It may have forgotten some.
    pub(super) fn clusters(&self, service: &ServiceKey) -> BTreeSet<String> {
        self.0.lock().get(service).map(|service| service.unchecked.clone()).unwrap_or_default()
    }
}

fn owned_key(instance: &Instance) -> (String, u16, String) {
    let (ip, port, cluster) = key_of(instance);
    (ip.to_owned(), port, cluster.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_with_the_names_of_pods_are_forgotten() {
        let (_, instance) = crate::http::tests::example();
        let written = Written::default();
        let service = |number: usize| ServiceKey { name: format!("web-{number}"), ..ServiceKey::default() };
        let register = |number| {
            written.note_changes(&[Change::Register(service(number), instance.clone())]);
            written.note_unchecked(&service(number), "DEFAULT".to_owned());
        };
        (0..MAX_SERVICES).for_each(register);
        std::thread::sleep(LIST_LAG);
        register(MAX_SERVICES);
        register(MAX_SERVICES + 1);
        assert_eq!(written.0.lock().len(), 2);
        let last = service(MAX_SERVICES + 1);
        assert!(
            written.is_unchecked(&last, "DEFAULT") && written.until_listed(&last, &[&instance]).is_some()
        );
        assert!(!written.is_unchecked(&service(0), "DEFAULT") && written.clusters(&service(0)).is_empty());
    }
}
