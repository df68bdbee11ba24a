//! The layout of Curator's service discovery: `<base>/<service>/<id>`, with JSON.

use std::time::SystemTime;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::error::RegistryError;
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::limits::Instances;
use crate::listed::{Listed, Unreadable, has_mark, owner_in};
use crate::registry::Change;

use super::calls::{CONCURRENCY, Calls, Node};
use super::codes::Refusal;
use super::curator;
use super::packets::Request;
use super::path;

/// The layout.
#[derive(Debug)]
pub(super) struct Applications {
    /// Without a slash at the end.
    pub(super) base: String,
    /// Whether instances can be registered and deregistered.
    pub(super) own: bool,
}

impl Applications {
    fn service(&self, service: &ServiceKey) -> String {
        format!("{}/{}", self.base, service.name)
    }

    fn path(&self, service: &ServiceKey, instance: &Instance) -> String {
        format!("{}/{}", self.service(service), instance.id)
    }

    pub(super) async fn listed(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
    ) -> Result<Listed, RegistryError> {
        if path::check_parts(&service.name).is_err() {
            return Ok(Listed::default());
        }
        let ids = calls.children(&self.service(service)).await?.unwrap_or_default();
        let read = ids.into_iter().map(|id| async move {
            let path = format!("{}/{id}", self.service(service));
            let node = calls.node(&path).await?;
            Ok::<_, RegistryError>(node.map_or(Entry::Other, |node| decoded(calls, &path, &id, &node)))
        });
        let read: Vec<_> = read.collect();
        let mut read = stream::iter(read).buffered(CONCURRENCY);
        let (mut found, mut unreadable) = (Instances::default(), Vec::new());
        while let Some(entry) = read.try_next().await? {
            calls.wait_if_large().await?;
            match entry {
                Entry::Instance(instance) => {
                    found.push(instance).map_err(|exceeded| calls.exceeded(exceeded))?;
                }
                Entry::Unreadable(entry) => unreadable.push(entry),
                Entry::Other => {}
            }
        }
        Ok(Listed { instances: found.into_vec(), unreadable })
    }

    pub(super) async fn instance(
        &self,
        calls: &Calls<'_>,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        if check(service, wanted).is_err() {
            return Ok(None);
        }
        let path = self.path(service, wanted);
        let Some(node) = self.present(calls, &path).await? else { return Ok(None) };
        match decoded(calls, &path, &wanted.id, &node) {
            Entry::Instance(instance) => Ok(Some(instance)),
            Entry::Unreadable(entry) => Err(entry.error),
            Entry::Other => Ok(None),
        }
    }

    pub(super) async fn write(&self, calls: &Calls<'_>, change: &Change) -> Result<(), RegistryError> {
        let (service, instance) = change.target();
        check(service, instance).map_err(|reason| calls.rejected(reason))?;
        let path = self.path(service, instance);
        match change {
            Change::Register(..) | Change::Deregister(..) if !self.own => {
                let reason = "the consumers of Dubbo need metadata that only the application has; it has to register itself";
                Err(calls.rejected(reason))
            }
            Change::Register(..) => self.register(calls, &path, service, instance).await,
            Change::SetInService(..) => self.set_in_service(calls, &path, instance).await,
            Change::Deregister(..) => self.deregister(calls, &path, instance).await,
        }
    }

    async fn register(
        &self,
        calls: &Calls<'_>,
        path: &str,
        service: &ServiceKey,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        if instance.metadata.contains_key(curator::STATUS) {
            let reason = format!("the key {} of the metadata says whether it is in service", curator::STATUS);
            return Err(calls.rejected(reason));
        }
        if instance.version.is_none() {
            let data = curator::encode(&service.name, instance, now());
            match calls.create(path, data).await? {
                Ok(()) => return Ok(()),
                Err(Refusal::NodeExists) => {}
                Err(_) => return Err(calls.conflict("somebody else removes the nodes above it")),
            }
        }
        let node = self.present(calls, path).await?;
        let Some(node) = node else { return Err(calls.conflict("somebody else has removed it")) };
        let present = own(calls, path, &node, instance)?;
        // Curator has neither weights nor clusters.
        let Instance { weight, version, .. } = *instance;
        if (Instance { weight, version, cluster: instance.cluster.clone(), ..present.clone() }) == *instance {
            return Ok(());
        }
        check_version(calls, path, instance.version, present.version)?;
        let registered = curator::registered(&node.data).unwrap_or_else(now);
        let data = curator::encode(&service.name, instance, registered);
        set(calls, path, data, &node).await
    }

    async fn set_in_service(
        &self,
        calls: &Calls<'_>,
        path: &str,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        let node = self.present(calls, path).await?;
        let Some(node) = node else { return Err(calls.conflict("there is no such instance")) };
        let present = curator::decode(&instance.id, &node.data, &node.stat);
        let data = curator::set_in_service(&node.data, instance.in_service);
        let (Some(present), Some(data)) = (present, data) else {
            return Err(calls.conflict(format!("node {path} is not an instance")));
        };
        let is_as_wanted = if instance.in_service { present.in_service } else { present.is_held_out() };
        if is_as_wanted {
            return Ok(());
        }
        let wanted = curator::decode(&instance.id, &data, &node.stat);
        // An application that was not ready says itself when it is.
        if wanted.is_none_or(|wanted| wanted.in_service != instance.in_service && !wanted.may_return) {
            return Err(calls.conflict("its application offers nothing"));
        }
        check_version(calls, path, instance.version, present.version)?;
        set(calls, path, data, &node).await
    }

    async fn deregister(
        &self,
        calls: &Calls<'_>,
        path: &str,
        instance: &Instance,
    ) -> Result<(), RegistryError> {
        let Some(node) = self.present(calls, path).await? else { return Ok(()) };
        let present = own(calls, path, &node, instance)?;
        check_version(calls, path, instance.version, present.version)?;
        let request = Request::Delete { path: path.to_owned(), version: node.stat.version };
        match calls.write(request).await? {
            Ok(()) | Err(Refusal::NoNode) => Ok(()),
            Err(_) => Err(calls.conflict(format!("somebody else writes node {path} at the same time"))),
        }
    }

    /// Returns the present state of a node.
    async fn present(&self, calls: &Calls<'_>, path: &str) -> Result<Option<Node>, RegistryError> {
        calls.sync(path).await?;
        calls.node(path).await
    }
}

/// What a node is.
enum Entry {
    Instance(Instance),
    /// It may be any instance.
    Unreadable(Unreadable),
    /// It is certainly no instance.
    Other,
}

fn decoded(calls: &Calls<'_>, path: &str, id: &str, node: &Node) -> Entry {
    match curator::decode(id, &node.data, &node.stat) {
        Some(instance) => Entry::Instance(instance),
        None if curator::is_no_instance(&node.data) => Entry::Other,
        None => {
            let (host, port) = curator::address(id, &node.data);
            let (owner, is_marked) = (owner_in(&node.data), has_mark(&node.data));
            let (id, error) = (id.to_owned(), calls.unreadable(path));
            Entry::Unreadable(Unreadable { id, host, port, owner, is_marked, error })
        }
    }
}

/// Returns the stored instance, if it is one of the owner of `instance` that no application keeps.
fn own(calls: &Calls<'_>, path: &str, node: &Node, instance: &Instance) -> Result<Instance, RegistryError> {
    curator::decode(&instance.id, &node.data, &node.stat)
        .filter(|present| !node.stat.is_ephemeral && present.owner().is_some())
        .filter(|present| present.owner() == instance.owner())
        .ok_or_else(|| calls.conflict(format!("somebody else has written node {path}")))
}

/// Compares the version that was read with the present one.
fn check_version(
    calls: &Calls<'_>,
    path: &str,
    read: Option<InstanceVersion>,
    present: Option<InstanceVersion>,
) -> Result<(), RegistryError> {
    if read.is_some() && read != present {
        return Err(calls.conflict(format!("somebody else has written node {path}")));
    }
    Ok(())
}

async fn set(calls: &Calls<'_>, path: &str, data: Vec<u8>, node: &Node) -> Result<(), RegistryError> {
    let request = Request::Set { path: path.to_owned(), data, version: node.stat.version };
    match calls.write(request).await? {
        Ok(()) => Ok(()),
        Err(Refusal::NoNode) => Err(calls.conflict("somebody else has removed it")),
        Err(_) => Err(calls.conflict(format!("somebody else writes node {path} at the same time"))),
    }
}

fn check(service: &ServiceKey, instance: &Instance) -> Result<(), String> {
    path::check_parts(&service.name)?;
    path::check_name(&instance.id)
}

/// Returns the time in milliseconds since 1970.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or_default()
}
