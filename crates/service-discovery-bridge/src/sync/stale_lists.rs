//! Lists of a registry that show an instance in service after its removal.

use std::collections::HashMap;

use futures::stream::{self, StreamExt};
use podward_api::discovery_binding::BindingMode;
use podward_registries::{Instance, RegistryError, ServiceKey};

use super::access::RegistryAccess;
use super::task::{Outcome, Task, is_same};

/// Lists that are read at the same time.
const MAX_CONCURRENT_CALLS: usize = 4;

/// Reads the lists of each address for the tasks whose instances must not be in them, and whose removal is shown otherwise.
/// Changes the outcomes of those that a list still shows in service, or whose lists cannot be read.
pub(super) async fn look_into_lists(access: &RegistryAccess, tasks: &[Task], outcomes: &mut [Outcome]) {
    let mut of_services: HashMap<&ServiceKey, Vec<usize>> = HashMap::new();
    for (index, (task, outcome)) in tasks.iter().zip(&*outcomes).enumerate() {
        if task.lists && matches!(outcome, Outcome::Shown { .. }) {
            of_services.entry(&task.desired.service).or_default().push(index);
        }
    }
    let addresses = 0..access.addresses().len();
    let reads: Vec<_> = of_services
        .keys()
        .flat_map(|service| addresses.clone().map(move |address| (*service, address)))
        .map(|(service, address)| async move {
            (service, address, access.registry.instances(address, service).await)
        })
        .collect();
    let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_CALLS);
    while let Some((service, address, listed)) = reads.next().await {
        for index in of_services.get(service).into_iter().flatten() {
            if let (Some(task), Some(outcome)) = (tasks.get(*index), outcomes.get_mut(*index))
                && let Some(changed) = judge(access, task, address, &listed)
            {
                *outcome = changed;
            }
        }
    }
}

/// Returns the outcome of a task if a list, or the failure to read it, changes it.
fn judge(
    access: &RegistryAccess,
    task: &Task,
    address: usize,
    listed: &Result<Vec<Instance>, RegistryError>,
) -> Option<Outcome> {
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => {
            access.note(error);
            return Some(Outcome::Failed(error.to_string()));
        }
    };
    let instance = &task.desired.instance;
    let by_id = task.mode == BindingMode::Own;
    let mut same = listed.iter().filter(|found| is_same(access, found, instance, by_id));
    same.any(|found| found.in_service).then(|| {
        Outcome::InStaleList(format!(
            "service {}: the list at {} still shows {}:{} in service, which was taken out more than {} s ago; lists are older than \
             the connection says (Eureka: responseCacheSeconds); the list is read again every second",
            task.desired.service.name,
            access.addresses().get(address).map_or("the registry", String::as_str),
            instance.host,
            instance.port,
            access.capabilities.list_lag.as_secs()
        ))
    })
}
