//! What all registries have in common.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::RegistryError;
use crate::instance::{Instance, ServiceKey};
use crate::listed::Listed;

/// A change of one instance. Each is idempotent: the same change again succeeds and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Registers an instance, or replaces the one with its id (or address). With a version it replaces only that version.
    /// Without one, registries with conditional changes replace only an instance with the same owner.
    Register(ServiceKey, Instance),
    /// Sets [`Instance::in_service`] of a stored instance, and nothing else of it. The instance is as it was read; the
    /// flag is the wanted one. The application may have registered it.
    SetInService(ServiceKey, Instance),
    /// Removes a stored instance, which is as it was read. It succeeds if there is none.
    Deregister(ServiceKey, Instance),
}

impl Change {
    /// Returns the service and the instance.
    pub fn target(&self) -> (&ServiceKey, &Instance) {
        let (Change::Register(service, instance)
        | Change::SetInService(service, instance)
        | Change::Deregister(service, instance)) = self;
        (service, instance)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (service, instance) = self.target();
        let verb = match self {
            Change::Register(..) => "register",
            Change::SetInService(..) if instance.in_service => "put into service",
            Change::SetInService(..) => "take out of service",
            Change::Deregister(..) => "deregister",
        };
        write!(f, "{verb} {}:{} of service {}", instance.host, instance.port, service.name)
    }
}

/// Says whether a change may still be made. An error is the result of the change.
pub type MayChange<'m> = &'m (dyn Fn(&Change) -> Result<(), RegistryError> + Send + Sync);

/// What a kind of registry can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if this client can register and deregister instances.
    pub own: bool,
    /// True if this client can take instances out of service that the application registered, and put them back.
    pub steer: bool,
    /// True if an instance is known by its address: another one with the same address replaces it. Otherwise it is known by
    /// [`Instance::id`].
    pub by_address: bool,
    /// True if the registry stores [`Instance::weight`].
    pub weights: bool,
    /// The interval at which registrations must be renewed. `None` if they last until they are removed.
    pub renewal: Option<Duration>,
    /// The greatest number of changes in one call of [`Registry::write`].
    pub batch: usize,
    /// How long [`Registry::services`] and [`Registry::instances`] may show an older state of their address.
    /// [`Registry::instance`] shows the present one.
    pub list_lag: Duration,
    /// How long clients of this kind of registry use what they have read, by default, after the registry shows a change.
    pub cache: Duration,
}

/// A client of one registry with one or more addresses. Clones of what it reads are independent of it; it keeps connections,
/// tokens and the detected version, but no instances.
///
/// Reads take the index of an address, because only what every address shows is visible to all clients. Writes go to an
/// address of the client's choice: one that answers.
#[async_trait]
pub trait Registry: fmt::Debug + Send + Sync {
    /// Returns what this kind of registry can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns true if [`Registry::instances`] can be called. Otherwise no change can be read back.
    fn can_read(&self) -> bool {
        true
    }

    /// Returns true if [`Registry::services`] can be called. Otherwise only the services are known that changes name.
    fn can_list(&self) -> bool {
        true
    }

    /// Returns true if the registry can store an instance that is out of service. Otherwise it has to be deregistered.
    fn can_take_out_of_service(&self) -> bool {
        true
    }

    /// Checks that the registry can store an instance with this weight. An error is a text for people.
    ///
    /// # Errors
    /// Fails if it would store another one.
    fn check_weight(&self, _weight: f64) -> Result<(), String> {
        Ok(())
    }

    /// Returns the configured addresses, without credentials.
    fn addresses(&self) -> &[String];

    /// Returns the services that may have instances with the mark of `cluster`: the id of a Kubernetes cluster. A registry
    /// that cannot select them returns all services that this client may see.
    ///
    /// # Errors
    /// Fails if the address cannot be read. An empty list means that there are none.
    async fn services(&self, address: usize, cluster: &str) -> Result<Vec<ServiceKey>, RegistryError>;

    /// Returns all instances of a service that the address shows, also those of others and those out of service. A service
    /// that does not exist has none.
    ///
    /// # Errors
    /// Fails if the address, or an entry that may be an instance, cannot be read.
    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError>;

    /// As [`instances`](Self::instances), where entries that cannot be read hide no other ones.
    ///
    /// # Errors
    /// Fails if the address cannot be read.
    async fn listed(&self, address: usize, service: &ServiceKey) -> Result<Listed, RegistryError> {
        let instances = self.instances(address, service).await?;
        Ok(Listed { instances, unreadable: Vec::new() })
    }

    /// Returns how long after a change of an instance [`Registry::instance`] answers about it: before, the registry may show it
    /// as it was.
    fn read_lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns true if [`Registry::read_many`] needs fewer calls than [`Registry::instance`] for each instance.
    fn reads_many(&self) -> bool {
        false
    }

    /// Returns the present state of several instances of a service, each as [`Registry::instance`] does, in their order.
    ///
    /// # Errors
    /// Fails if the address cannot be read.
    async fn read_many(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &[&Instance],
    ) -> Result<Vec<Option<Instance>>, RegistryError> {
        let mut found = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            found.push(self.instance(address, service, wanted).await?);
        }
        Ok(found)
    }

    /// Returns the present state of one instance that the address shows: the one with the id of `wanted`, or with its address
    /// where an instance is known by that. `None` if there is none.
    ///
    /// # Errors
    /// Fails if the address cannot be read.
    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let by_address = self.capabilities().by_address;
        let is_wanted = |found: &Instance| match by_address {
            true => (&found.host, found.port) == (&wanted.host, wanted.port),
            false => found.id == wanted.id,
        };
        Ok(self.instances(address, service).await?.into_iter().find(is_wanted))
    }

    /// Returns the form of a name that [`Registry::services`] returns, for registries in which several names mean one service.
    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        service
    }

    /// Makes up to [`Capabilities::batch`] changes, and returns the result of each, in their order. Some may succeed while
    /// others fail. Asks `may_change` before each change that is a call of its own, because a batch may take long,
    /// and again after other calls for the same change. Where all changes are one call, it is asked only about those
    /// that are sent again. When an address is not reached, Eureka, etcd and Consul send the same call to the next one
    /// without asking again.
    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>>;

    /// As [`write_while`](Self::write_while), where all changes may be made.
    async fn write(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        self.write_while(changes, &|_| Ok(())).await
    }

    /// Renews the registrations of up to [`Capabilities::batch`] instances, and returns for each whether the registry
    /// knows it. `Ok(false)` means that it has to be registered again. Registries without renewal return `Ok(true)`. The
    /// renewal of an instance may be a change of what is stored: if `may_change` does not allow it, the instance stays as it
    /// is, and the error of `may_change` is its result.
    async fn renew_while(
        &self,
        instances: &[(ServiceKey, Instance)],
        _may_change: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        instances.iter().map(|_| Ok(true)).collect()
    }

    /// As [`renew_while`](Self::renew_while), where all changes may be made.
    async fn renew(&self, instances: &[(ServiceKey, Instance)]) -> Vec<Result<bool, RegistryError>> {
        self.renew_while(instances, &|_| Ok(())).await
    }

    /// Returns when something may have changed in one of the services since the last call, for registries that can report
    /// it. Others never return.
    ///
    /// # Errors
    /// Fails if the address cannot be watched.
    async fn changed(&self, _address: usize, _services: &[ServiceKey]) -> Result<(), RegistryError> {
        std::future::pending().await
    }
}
