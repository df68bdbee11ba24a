//! What the tests of all registries share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use podward_registries::{
    Change, Connection, Credentials, DirectDialer, Instance, Owner, Registry, RegistryError,
    RegistryErrorKind, ServiceKey,
};

/// The time for a server to elect a leader.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn service(name: &str) -> ServiceKey {
    ServiceKey { name: name.to_owned(), ..ServiceKey::default() }
}

pub(crate) fn owner(uid: &str) -> Owner {
    Owner {
        cluster: "c1".to_owned(),
        namespace: "shop".to_owned(),
        binding: "web".to_owned(),
        pod: format!("pod-{uid}"),
        uid: uid.to_owned(),
    }
}

/// An instance in service on port 8080.
pub(crate) fn instance(uid: &str, host: &str) -> Instance {
    let mut metadata = BTreeMap::from([("version".to_owned(), "v1".to_owned())]);
    owner(uid).mark(&mut metadata);
    Instance {
        id: format!("web-{uid}"),
        host: host.to_owned(),
        port: 8080,
        cluster: String::new(),
        weight: 2.0,
        metadata,
        in_service: true,
        may_return: false,
        version: None,
    }
}

/// Returns a connection without TLS and credentials.
pub(crate) fn connection(addresses: Vec<String>) -> Connection {
    Connection {
        addresses,
        tls: None,
        credentials: Credentials::Anonymous,
        timeout: Duration::from_secs(60),
        dialer: Arc::new(DirectDialer),
    }
}

/// Writes one change.
pub(crate) async fn write(registry: &dyn Registry, change: Change) -> Result<(), RegistryError> {
    registry.write(&[change]).await.remove(0)
}

/// Allows no change.
pub(crate) fn too_late(change: &Change) -> Result<(), RegistryError> {
    let (doing, address, reason) = (change.to_string(), String::new(), "too late".to_owned());
    Err(RegistryError { doing, address, reason, kind: RegistryErrorKind::Unavailable })
}

/// Allows the first `number` changes that it is asked about.
pub(crate) fn only_first(number: usize) -> impl Fn(&Change) -> Result<(), RegistryError> + Send + Sync {
    let left = AtomicUsize::new(number);
    move |change| match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Ok(()),
        Err(_) => too_late(change),
    }
}

/// Returns the error of a call that has to fail.
pub(crate) fn refused<T>(result: Result<T, RegistryError>) -> anyhow::Result<RegistryError> {
    result.err().context("the call has not failed")
}

/// Returns the only instance.
pub(crate) fn only(mut instances: Vec<Instance>) -> anyhow::Result<Instance> {
    ensure!(instances.len() == 1, "not one instance: {instances:?}");
    Ok(instances.remove(0))
}

/// Waits until a write succeeds: a server that has just started may not have a leader.
pub(crate) async fn until_writable(registry: &dyn Registry) -> anyhow::Result<()> {
    let (service, probe) = (service("probe"), instance("probe", "10.9.9.9"));
    let end = Instant::now() + LIMIT;
    loop {
        let changes = [
            Change::Register(service.clone(), probe.clone()),
            Change::Deregister(service.clone(), probe.clone()),
        ];
        let mut results = registry.write(&changes[..1]).await;
        results.extend(registry.write(&changes[1..]).await);
        let Some(error) = results.into_iter().find_map(Result::err) else { return Ok(()) };
        if Instant::now() > end {
            bail!("the registry accepts no writes: {error}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
