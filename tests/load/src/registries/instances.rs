//! Instances as the bridge registers them, and reads of a registry.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use podward_registries::{Instance, Owner, Registry, ServiceKey};

use super::names::{BINDING, NAMESPACE};
use super::pods::ReadyPod;

/// The interval of reads of a single instance.
const POLL: Duration = Duration::from_millis(5);

/// Returns the key of a service.
pub(super) fn key(service: &str) -> ServiceKey {
    ServiceKey { name: service.to_owned(), ..ServiceKey::default() }
}

/// Returns the instance that the bridge registers for a pod, with as much metadata.
pub(super) fn instance_of(pod: &ReadyPod) -> Instance {
    instance(&pod.name, &pod.uid, &pod.ip)
}

/// Returns the instance of a pod that does not exist. Each number has another address.
pub(super) fn instance_without_pod(number: usize) -> Instance {
    let [.., high, middle, low] = number.to_be_bytes();
    let uid = format!("00000000-0000-4000-8000-{number:012}");
    instance(&format!("direct-{number}"), &uid, &format!("10.{high}.{middle}.{low}"))
}

fn instance(name: &str, uid: &str, ip: &str) -> Instance {
    let owner = Owner {
        cluster: "00000000-0000-4000-8000-000000000000".to_owned(),
        namespace: NAMESPACE.to_owned(),
        binding: BINDING.to_owned(),
        pod: name.to_owned(),
        uid: uid.to_owned(),
    };
    let more = [("zone", "eu-1"), ("version", "1")];
    let mut metadata: BTreeMap<String, String> =
        more.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    owner.mark(&mut metadata);
    Instance {
        id: format!("{NAMESPACE}.{name}.{uid}.8080"),
        host: ip.to_owned(),
        port: 8080,
        cluster: String::new(),
        weight: 1.0,
        metadata,
        in_service: true,
        may_return: false,
        version: None,
    }
}

/// Reads a registry until it shows an instance in service.
pub(super) async fn until_visible(
    registry: &dyn Registry,
    service: &ServiceKey,
    wanted: &Instance,
) -> Result<()> {
    loop {
        let found = registry.instance(0, service, wanted).await.context("read an instance")?;
        if found.is_some_and(|found| found.in_service) {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Returns the number of instances of `services` in service.
pub(super) async fn count(registry: &dyn Registry, services: &[String]) -> Result<usize> {
    let mut count = 0;
    for service in services {
        let found = registry.instances(0, &key(service)).await.context("read the instances of a service")?;
        count += found.iter().filter(|instance| instance.in_service).count();
    }
    Ok(count)
}
