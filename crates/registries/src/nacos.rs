//! Nacos 1, 2 and 3, over its HTTP interface.
//!
//! Podward's instances are persistent: they do not vanish when nobody renews them, and the health checker of their cluster is
//! NONE, so that the server does not probe them. A service of Nacos has either persistent or ephemeral instances. Instances
//! of applications are ephemeral: they can be steered.
//!
//! Lists that clients read lack instances that are disabled, so two lists are read: this one, and the list of what is stored.
//! The latter lacks them too with rnacos, so an instance that it lacks is also looked up by its address with version 1.

mod api;
mod calls;
mod found;
mod server;
mod wire;
mod written;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hyper::Method;

use crate::connection::Connection;
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::http_client::HttpClient;
use crate::instance::{Instance, ServiceKey};
use crate::limits::{Exceeded, MAX_INSTANCES, MAX_METADATA};
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::api::{Api, CLUSTER};
use self::calls::{Lists, read_unlisted, send};
use self::found::{Found, cluster, key, key_of, parameters_of, wire_of};
use self::server::{Call, Server};
use self::wire::StoredInstance;
use self::written::{LIST_LAG, Written};

/// The number of calls at the same time. Nacos has no calls that register several persistent instances.
const CONCURRENCY: usize = 16;
const BATCH: usize = 256;
/// Clients of Nacos 1 ask every 10 s, because notifications over UDP may be lost. Spring's load balancer keeps the answer
/// (`spring.cloud.loadbalancer.cache.ttl`, 35 s).
const CACHE: Duration = Duration::from_secs(45);

/// A client of Nacos.
pub struct Nacos {
    servers: Vec<Server>,
    addresses: Vec<String>,
    written: Written,
}

/// A service before some changes of it.
struct Before<'a> {
    server: &'a Server,
    /// The instances that the changes are about. Others are not kept meanwhile.
    found: Vec<Found>,
    is_new: bool,
}

impl<'a> Before<'a> {
    fn new((server, mut found): (&'a Server, Vec<Found>), wanted: &[&Instance]) -> Self {
        let is_new = found.is_empty();
        let keys: HashSet<_> = wanted.iter().map(|instance| key_of(instance)).collect();
        found.retain(|found| keys.contains(&key(&found.stored)));
        found.shrink_to_fit();
        Self { server, found, is_new }
    }
}

impl fmt::Debug for Nacos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nacos").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Nacos {
    /// Returns a client. The addresses are URLs with the context path of Nacos: `http://nacos:8848/nacos`. Without a path it
    /// is `/nacos`.
    ///
    /// # Errors
    /// Fails if the TLS options are unusable.
    pub fn new(connection: &Connection) -> Result<Self, String> {
        let http = HttpClient::new(connection)?;
        let servers = connection.addresses.iter().map(|address| {
            let mut url = address.trim_end_matches('/').to_owned();
            if url.split_once("://").is_none_or(|(_, rest)| !rest.contains('/')) {
                url.push_str("/nacos");
            }
            Server::new(url, http.clone(), connection.credentials.clone())
        });
        let servers: Vec<Server> = servers.collect();
        let addresses = connection.addresses.clone();
        Ok(Self { servers, addresses, written: Written::default() })
    }

    /// Reads the instances of a service at one server: of all clusters that are visible, and of those of `wanted`. One whose
    /// instances are all disabled is not visible.
    async fn read(
        &self,
        server: &Server,
        service: &ServiceKey,
        wanted: &[&Instance],
        doing: &str,
    ) -> Result<Vec<Found>, RegistryError> {
        let api = server.api(doing).await?;
        let mut lists = Lists::default();
        let parameters = api.name(api.visible(), service);
        let visible = lists.list((server, api), api.visible(), parameters, doing).await?;
        let Some(visible) = visible else {
            server.forget_api();
            let reason = "HTTP status 404: the server has changed; its version will be detected again";
            return Err(server.error(RegistryErrorKind::Unavailable, doing, reason.to_owned()));
        };
        let mut clusters: BTreeSet<String> = [CLUSTER.to_owned()].into();
        if api.lists_clusters() {
            clusters.extend(visible.iter().map(|instance| cluster(instance).to_owned()));
            clusters.extend(wanted.iter().map(|instance| key_of(instance).2.to_owned()));
            clusters.extend(self.written.clusters(service));
        }
        let (mut found, mut metadata) = (Vec::new(), 0);
        for cluster in clusters {
            let mut parameters = api.name(api.stored(), service);
            parameters.extend(api.page(&cluster));
            let stored = lists.list((server, api), api.stored(), parameters, doing).await?;
            let is_of_list = |seen: &StoredInstance| !api.lists_clusters() || self::cluster(seen) == cluster;
            if stored.is_none() && visible.iter().any(is_of_list) {
                let reason = format!(
                    "there is no list of all instances ({}), but the list that clients read has some; a proxy has to \
                     pass this path on",
                    api.stored()
                );
                return Err(server.error(RegistryErrorKind::Unavailable, doing, reason));
            }
            // Nacos has no service, or no cluster, without instances.
            let stored = stored.unwrap_or_default();
            metadata += stored.iter().map(|stored| stored.metadata.0.len()).sum::<usize>();
            found.extend(stored);
            let exceeded = match (found.len() > MAX_INSTANCES, metadata > MAX_METADATA) {
                (true, _) => Exceeded::Instances,
                (_, true) => Exceeded::Metadata,
                _ => continue,
            };
            return Err(exceeded.error(doing, &server.url));
        }
        let seen: HashSet<_> = visible.iter().filter(|instance| instance.healthy).map(key).collect();
        let is_visible = |stored: &StoredInstance| stored.enabled && seen.contains(&key(stored));
        let found = found.into_iter().map(|stored| Found {
            is_visible: is_visible(&stored),
            is_disabled: !stored.enabled,
            stored,
        });
        let mut found: Vec<Found> = found.collect();
        // Clients may be shown an instance that is not stored any more.
        let stored: HashSet<_> = found.iter().map(|found| key(&found.stored)).collect();
        let only_visible = visible.into_iter().filter(|seen| !stored.contains(&key(seen)));
        let only_visible: Vec<StoredInstance> = only_visible.collect();
        found.extend(only_visible.into_iter().map(|stored| Found {
            is_visible: stored.enabled && stored.healthy,
            is_disabled: !stored.enabled,
            stored,
        }));
        Ok(found)
    }

    /// Reads a service at the first server that is reachable, and returns the server too: it tells the others.
    async fn read_anywhere(
        &self,
        service: &ServiceKey,
        wanted: &[&Instance],
        doing: &str,
    ) -> Result<(&Server, Vec<Found>), RegistryError> {
        let mut last = None;
        for server in &self.servers {
            match self.read(server, service, wanted, doing).await {
                Ok(found) => return Ok((server, found)),
                // Nothing was changed.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        match last {
            Some(error) => Err(error),
            None => at_address(&self.servers, 0, doing).map(|server| (server, Vec::new())),
        }
    }

    async fn write_one(
        &self,
        change: &Change,
        before: &Before<'_>,
        may_change: MayChange<'_>,
    ) -> Result<(), RegistryError> {
        let Before { server, found: all, is_new } = before;
        let (service, instance) = change.target();
        let doing = change.to_string();
        let conflict = |reason: &str| server.error(RegistryErrorKind::Conflict, &doing, reason.to_owned());
        if service.name.is_empty() {
            let reason = "the name of the service is empty";
            return Err(server.error(RegistryErrorKind::Rejected, &doing, reason.to_owned()));
        }
        let present = match all.iter().find(|found| key(&found.stored) == key_of(instance)) {
            Some(found) => Some(found.clone()),
            None => read_unlisted(server, service, instance, &doing).await?,
        };
        let is_ours = present.clone().map(Instance::from).is_none_or(|found| match change {
            Change::Register(..) => instance.may_replace(&found),
            _ => found.owner() == instance.owner(),
        });
        let (method, mut stored) = match (change, present) {
            (Change::SetInService(..), None) => return Err(conflict("Nacos does not know the instance")),
            (Change::SetInService(..), Some(found)) => (Method::PUT, found.stored),
            _ if !is_ours => return Err(conflict("somebody else has registered an instance at its address")),
            (Change::Register(..), Some(_)) => (Method::PUT, wire_of(instance)),
            (Change::Register(..), None) => (Method::POST, wire_of(instance)),
            // The list may be older than a registration.
            (Change::Deregister(..), None) if self.written.until_listed(service, &[instance]).is_some() => {
                (Method::DELETE, wire_of(instance))
            }
            (Change::Deregister(..), None) => return Ok(()),
            (Change::Deregister(..), Some(found)) => (Method::DELETE, found.stored),
        };
        stored.enabled = instance.in_service;
        let is_registered = method == Method::POST;
        let api = server.api(&doing).await?;
        let mut parameters = api.name(api.instance(), service);
        parameters.extend(parameters_of(&stored)?);
        let call = |method, parameters| Call { method, path: api.instance(), parameters };
        // The calls before may have taken long.
        may_change(change)?;
        send(server, call(method, parameters.clone()), false, &doing).await?;
        if is_registered {
            let allowed = may_change(change);
            if allowed.is_ok() {
                // Nacos keeps what an update has stored for an address for a while after the instance is gone, and
                // shows it instead of what a registration says: the address may have had an instance of somebody else.
                send(server, call(Method::PUT, parameters), false, &doing).await?;
            }
            // Whoever finds the instance registered does not do that.
            self.switch_off_checks((server, api), service, &stored, *is_new, &doing).await?;
            return allowed;
        }
        Ok(())
    }

    /// Sets the health checker of an instance's cluster to NONE, unless this client has done so, and `is_new` is false.
    async fn switch_off_checks(
        &self,
        (server, api): (&Server, Api),
        service: &ServiceKey,
        instance: &StoredInstance,
        is_new: bool,
        doing: &str,
    ) -> Result<(), RegistryError> {
        let cluster = cluster(instance).to_owned();
        if self.written.is_unchecked(service, &cluster) && !is_new {
            return Ok(());
        }
        let mut parameters = api.name(api.cluster(), service);
        parameters.extend([
            ("clusterName", cluster.clone()),
            ("checkPort", "80".to_owned()),
            ("useInstancePort4Check", "true".to_owned()),
            ("healthChecker", r#"{"type":"NONE"}"#.to_owned()),
        ]);
        let doing = format!("{doing}: switch off the health checks of cluster {cluster}");
        send(server, Call { method: Method::PUT, path: api.cluster(), parameters }, true, &doing).await?;
        self.written.note_unchecked(service, cluster);
        Ok(())
    }
}

#[async_trait]
impl Registry for Nacos {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: true,
            by_address: true,
            weights: true,
            renewal: None,
            batch: BATCH,
            list_lag: LIST_LAG,
            cache: CACHE,
        }
    }

    /// Nacos lists the services of one group and namespace, and this client does not know which may be listed.
    fn can_list(&self) -> bool {
        false
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, _: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        Ok(Vec::new())
    }

    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        let without = |text: String, default| if text == default { String::new() } else { text };
        ServiceKey {
            namespace: without(service.namespace, api::NAMESPACE),
            group: without(service.group, api::GROUP),
            name: service.name,
        }
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let doing = format!("read the instances of service {}", service.name);
        let found = self.read(at_address(&self.servers, address, &doing)?, service, &[], &doing).await?;
        Ok(found.into_iter().map(Instance::from).collect())
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let found = self.read_many(address, service, &[wanted]).await?;
        Ok(found.into_iter().next().flatten())
    }

    fn read_lag(&self) -> Duration {
        LIST_LAG
    }

    fn reads_many(&self) -> bool {
        true
    }

    async fn read_many(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &[&Instance],
    ) -> Result<Vec<Option<Instance>>, RegistryError> {
        if let Some(remaining) = self.written.until_listed(service, wanted) {
            tokio::time::sleep(remaining).await;
        }
        let doing = match wanted {
            [one] => format!("read {}:{} of service {}", one.host, one.port, service.name),
            _ => format!("read {} instances of service {}", wanted.len(), service.name),
        };
        let server = at_address(&self.servers, address, &doing)?;
        let mut listed = self.read(server, service, wanted, &doing).await?;
        // Others are not kept meanwhile.
        let keys: HashSet<_> = wanted.iter().map(|wanted| key_of(wanted)).collect();
        listed.retain(|found| keys.contains(&key(&found.stored)));
        listed.shrink_to_fit();
        let listed: HashMap<_, _> = listed.iter().map(|found| (key(&found.stored), found)).collect();
        let reads: Vec<_> = wanted
            .iter()
            .map(|wanted| async {
                Ok(match listed.get(&key_of(wanted)) {
                    Some(found) => Some((*found).clone()),
                    None => read_unlisted(server, service, wanted, &doing).await?,
                }
                .map(Instance::from))
            })
            .collect();
        stream::iter(reads).buffered(CONCURRENCY).try_collect().await
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let mut services: HashMap<&ServiceKey, Result<Before<'_>, RegistryError>> = HashMap::new();
        for change in changes {
            let (service, _) = change.target();
            if !services.contains_key(service) {
                let targets = changes.iter().map(Change::target).filter(|(of, _)| *of == service);
                let wanted: Vec<&Instance> = targets.map(|(_, instance)| instance).collect();
                let read = self.read_anywhere(service, &wanted, &change.to_string()).await;
                services.insert(service, read.map(|read| Before::new(read, &wanted)));
            }
        }
        let calls: Vec<_> = changes
            .iter()
            .map(|change| {
                let read = &services[change.target().0];
                async move {
                    may_change(change)?;
                    match read {
                        Ok(before) => self.write_one(change, before, may_change).await,
                        Err(error) => Err(RegistryError { doing: change.to_string(), ..error.clone() }),
                    }
                }
            })
            .collect();
        let results = stream::iter(calls).buffered(CONCURRENCY).collect().await;
        self.written.note_changes(changes);
        results
    }
}
