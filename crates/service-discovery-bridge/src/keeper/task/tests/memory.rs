//! A registry in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use podward_registries::{
    Capabilities, Change, Instance, Listed, MayChange, Registry, RegistryError, RegistryErrorKind,
    ServiceKey, Unreadable,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::model::BoundPod;

/// A registry in memory. Its fields are what it can do.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) reads: bool,
    pub(super) lists: bool,
    pub(super) by_address: bool,
    /// True if it knows services by their names alone.
    pub(super) ignores_groups: bool,
    /// True if an instance is in one service only.
    pub(super) one_service: bool,
    /// True if each change is a call of its own.
    pub(super) one_by_one: bool,
    pub(super) list_lag: Duration,
    pub(super) addresses: Vec<String>,
    /// The address that does not answer.
    pub(super) silent: Option<usize>,
    /// How often instances are renewed. It knows none of them.
    pub(super) renewal: Option<Duration>,
    /// True if what cannot be read has a trace of a mark.
    pub(super) marks: bool,
    pub(super) state: Mutex<State>,
    pub(super) renewed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    services: BTreeMap<ServiceKey, Vec<Instance>>,
    /// What a change contains that is refused.
    refused: Option<&'static str>,
    written: Vec<String>,
    /// Registrations whose results are not known, and that take effect later. `None` if they take effect at once.
    delayed: Option<Vec<(ServiceKey, Instance)>>,
    /// Is cancelled during the next change.
    ends: Option<CancellationToken>,
    /// True if the list of services cannot be read.
    is_unlisted: bool,
    /// True if reads of instances never end.
    hangs: bool,
    /// True if reads of instances, and changes, end when an instance was renewed.
    waits_for_renewal: bool,
    /// The number of reads at the silent address.
    silent_reads: usize,
    /// The service, the id and the host of an instance that cannot be read.
    unreadable: Option<(&'static str, String, String)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            reads: true,
            lists: false,
            by_address: false,
            ignores_groups: false,
            one_service: false,
            one_by_one: false,
            list_lag: Duration::ZERO,
            addresses: vec!["http://a".to_owned()],
            silent: None,
            renewal: None,
            marks: true,
            state: Mutex::default(),
            renewed: Notify::new(),
        }
    }
}

impl Memory {
    /// Refuses the changes whose text contains `words`.
    pub(super) fn refuse(&self, words: Option<&'static str>) {
        self.state.lock().refused = words;
    }

    /// Has the results of registrations be unknown from now on.
    pub(super) fn delay(&self) {
        self.state.lock().delayed = Some(Vec::new());
    }

    /// Has the registrations with unknown results take effect, and later ones at once.
    pub(super) fn arrive(&self) {
        let mut state = self.state.lock();
        for (service, instance) in state.delayed.take().into_iter().flatten() {
            let instances = state.services.entry(self.stored(&service)).or_default();
            instances.retain(|found| !self.is_same(found, &instance));
            instances.push(instance);
        }
    }

    /// Has the list of services fail from now on, or not any more.
    pub(super) fn unlist(&self, is_unlisted: bool) {
        self.state.lock().is_unlisted = is_unlisted;
    }

    /// Has reads of instances never end from now on.
    pub(super) fn hang(&self) {
        self.state.lock().hangs = true;
    }

    /// Has reads of instances, and changes, last until an instance is renewed.
    pub(super) fn wait_for_renewal(&self) {
        self.state.lock().waits_for_renewal = true;
    }

    /// Has what is stored for a pod in a service be unreadable. Its host is not known if the pod has no address.
    pub(super) fn spoil(&self, service: &'static str, pod: &BoundPod) {
        let BoundPod { namespace, name, uid, ip, .. } = pod;
        self.state.lock().unreadable = Some((service, format!("{namespace}.{name}.{uid}.8080"), ip.clone()));
    }

    /// Has everything be readable again.
    pub(super) fn correct(&self) {
        self.state.lock().unreadable = None;
    }

    /// Removes the instances of a host, as somebody else does.
    pub(super) fn lose(&self, host: &str) {
        let mut state = self.state.lock();
        state.services.values_mut().for_each(|instances| instances.retain(|found| found.host != host));
    }

    /// Has all instances be healthy that are not.
    pub(super) fn heal(&self) {
        for instance in self.state.lock().services.values_mut().flatten() {
            instance.in_service |= std::mem::take(&mut instance.may_return);
        }
    }

    /// Cancels a token during the next change.
    pub(super) fn end_in_change(&self, stop: CancellationToken) {
        self.state.lock().ends = Some(stop);
    }

    /// Returns the number of reads at the silent address since the last call.
    pub(super) fn silent_reads(&self) -> usize {
        std::mem::take(&mut self.state.lock().silent_reads)
    }

    /// Returns `host:port` of the instances of a service that are in service.
    pub(super) fn shown(&self, service: &str) -> Vec<String> {
        let state = self.state.lock();
        let found = state.services.iter().filter(|(key, _)| key.name == service).flat_map(|(_, found)| found);
        let in_service = found.filter(|instance| instance.in_service);
        in_service.map(|instance| format!("{}:{}", instance.host, instance.port)).collect()
    }

    /// Returns the changes since the last call.
    pub(super) fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().written)
    }

    fn stored(&self, service: &ServiceKey) -> ServiceKey {
        match self.ignores_groups {
            true => ServiceKey { name: service.name.clone(), ..ServiceKey::default() },
            false => service.clone(),
        }
    }

    fn is_same(&self, one: &Instance, other: &Instance) -> bool {
        match self.by_address {
            true => (&one.host, one.port) == (&other.host, other.port),
            false => one.id == other.id,
        }
    }
}

fn unreadable_error() -> RegistryError {
    let (doing, address) = ("read".to_owned(), "http://a".to_owned());
    let (reason, kind) = ("a value is no instance".to_owned(), RegistryErrorKind::Invalid);
    RegistryError { doing, address, reason, kind }
}

#[async_trait]
impl Registry for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: true,
            by_address: self.by_address,
            weights: false,
            renewal: self.renewal,
            batch: 10,
            list_lag: self.list_lag,
            cache: Duration::ZERO,
        }
    }

    fn can_read(&self) -> bool {
        self.reads
    }

    fn can_list(&self) -> bool {
        self.lists
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, _: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let state = self.state.lock();
        if state.is_unlisted {
            let (doing, address) = ("list the services".to_owned(), "http://a".to_owned());
            let (reason, kind) = ("it has failed".to_owned(), RegistryErrorKind::Unavailable);
            return Err(RegistryError { doing, address, reason, kind });
        }
        let name =
            |(name, ..): &(&str, _, _)| ServiceKey { name: (*name).to_owned(), ..ServiceKey::default() };
        let spoiled = state.unreadable.as_ref().map(name);
        Ok(state.services.keys().cloned().chain(spoiled).collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        self.listed(address, service).await?.complete()
    }

    async fn listed(&self, address: usize, service: &ServiceKey) -> Result<Listed, RegistryError> {
        if self.silent == Some(address) {
            self.state.lock().silent_reads += 1;
            tokio::time::sleep(Duration::from_millis(1100)).await;
            let (doing, address) = ("read".to_owned(), self.addresses[address].clone());
            let (reason, kind) = ("no response within 1.1 s".to_owned(), RegistryErrorKind::Unknown);
            return Err(RegistryError { doing, address, reason, kind });
        }
        assert!(self.reads, "the registry cannot be read");
        let renewed = self.renewed.notified();
        if self.state.lock().waits_for_renewal {
            renewed.await;
        }
        if self.state.lock().hangs {
            std::future::pending::<()>().await;
        }
        let state = self.state.lock();
        let mut instances = state.services.get(&self.stored(service)).cloned().unwrap_or_default();
        let unreadable = state.unreadable.as_ref().filter(|(name, ..)| *name == service.name);
        let unreadable = unreadable.map(|(_, id, host)| {
            let (id, host) = (id.clone(), Some(host.clone()).filter(|host| !host.is_empty()));
            let (owner, is_marked, error) = (None, self.marks, unreadable_error());
            Unreadable { id, host, port: Some(8080), owner, is_marked, error }
        });
        instances.retain(|found| unreadable.as_ref().is_none_or(|entry| entry.id != found.id));
        Ok(Listed { instances, unreadable: unreadable.into_iter().collect() })
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let Listed { instances, unreadable } = self.listed(address, service).await?;
        if unreadable.iter().any(|entry| entry.id == wanted.id) {
            return Err(unreadable_error());
        }
        Ok(instances.into_iter().find(|found| self.is_same(found, wanted)))
    }

    async fn renew_while(
        &self,
        instances: &[(ServiceKey, Instance)],
        _: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        let mut state = self.state.lock();
        state.written.push("renew".to_owned());
        state.waits_for_renewal = false;
        self.renewed.notify_waiters();
        instances.iter().map(|_| Ok(false)).collect()
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let renewed = self.renewed.notified();
        if self.state.lock().waits_for_renewal {
            renewed.await;
        }
        let mut state = self.state.lock();
        let write = |change: &Change| {
            if self.one_by_one {
                may_change(change)?;
            }
            state.ends.take().into_iter().for_each(|stop| stop.cancel());
            let doing = change.to_string();
            if state.refused.is_some_and(|words| doing.contains(words)) {
                let (address, reason) = ("http://a".to_owned(), "it is read-only".to_owned());
                return Err(RegistryError { doing, address, reason, kind: RegistryErrorKind::Rejected });
            }
            let (service, instance) = change.target();
            if let (Some(delayed), Change::Register(..)) = (&mut state.delayed, change) {
                delayed.push((service.clone(), instance.clone()));
                let (address, reason) = ("http://a".to_owned(), "no response within 5 s".to_owned());
                return Err(RegistryError { doing, address, reason, kind: RegistryErrorKind::Unknown });
            }
            if self.one_service {
                let is_here = |key: &ServiceKey| *key == self.stored(service);
                let other = |found: &Instance| self.is_same(found, instance);
                let mut others = state.services.iter_mut().filter(|(key, _)| !is_here(key));
                let replaced = others.find(|(_, instances)| instances.iter().any(other));
                match (replaced, change) {
                    (Some((_, instances)), Change::Register(..)) => instances.retain(|found| !other(found)),
                    (Some(_), Change::Deregister(..)) => {
                        let (address, reason) = ("http://a".to_owned(), "index is stale".to_owned());
                        return Err(RegistryError {
                            doing,
                            address,
                            reason,
                            kind: RegistryErrorKind::Conflict,
                        });
                    }
                    _ => {}
                }
            }
            let service = state.services.entry(self.stored(service)).or_default();
            match change {
                Change::SetInService(..) => {
                    let found = service.iter_mut().find(|found| self.is_same(found, instance));
                    if let Some(found) = found {
                        (found.in_service, found.may_return) = (instance.in_service, false);
                    }
                }
                Change::Register(..) | Change::Deregister(..) => {
                    service.retain(|found| !self.is_same(found, instance));
                    service.extend(matches!(change, Change::Register(..)).then(|| instance.clone()));
                }
            }
            state.written.push(doing);
            Ok(())
        };
        changes.iter().map(write).collect()
    }
}
