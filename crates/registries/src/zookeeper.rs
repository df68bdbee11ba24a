//! ZooKeeper, by its own protocol.
//!
//! The nodes of this client are persistent: they stay when Podward is down. Every change is conditional on what was read, by
//! the version of the node. The state of a node at another address than the leader's may be old, so single instances are read
//! after a `sync`.
//!
//! With credentials (scheme `digest`) a node belongs to their user, and everybody may read it. The nodes above it, which are
//! created if they are missing, let everybody create nodes: applications and consumers do.

mod applications;
mod calls;
mod codes;
mod curator;
mod dubbo_url;
mod frames;
mod interfaces;
mod jute;
mod packets;
mod path;
mod server;
mod session;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::connection::{Connection, Credentials};
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::instance::{Instance, ServiceKey};
use crate::limits::LargeReads;
use crate::listed::Listed;
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::applications::Applications;
use self::calls::{CONCURRENCY, Calls};
use self::interfaces::Interfaces;
use self::packets::Request;
use self::server::{Server, ZooKeeperUser};
use self::session::MAX_SMALL;

const BATCH: usize = 256;
/// Curator's caches watch. Spring asks each time, and its load balancer keeps the answer
/// (`spring.cloud.loadbalancer.cache.ttl`, 35 s).
const CACHE_OF_SPRING: Duration = Duration::from_secs(35);
/// Dubbo watches, and may wait 5 s before it uses a change (`DEFAULT_DELAY_NOTIFICATION_TIME`).
const CACHE_OF_DUBBO: Duration = Duration::from_secs(10);
/// What Dubbo keeps beside the interfaces.
const NO_INTERFACES: [&str; 3] = ["config", "mapping", "metadata"];

/// What is special about a ZooKeeper.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    /// How instances are stored.
    pub layout: ZooKeeperLayout,
    /// The path of the node above all services. Empty for the default of the layout.
    pub base: String,
}

/// How instances are stored in ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ZooKeeperLayout {
    /// Curator's service discovery, with the payload of Spring Cloud: `/services/<service>/<id>`. Instances of applications
    /// can be steered, also those with another payload. An application that connects again writes its own state.
    #[default]
    Curator,
    /// Dubbo 2, and Dubbo 3 with interfaces: `/dubbo/<interface>/providers/<URL>`. The name of a service is that of an
    /// interface. The metadata are the parameters of the URL, such as `methods`, `group`, `version` and `application`. A
    /// weight of 1 is 100 in Dubbo.
    ///
    /// When all providers of a service are out of service, consumers keep those that they have. So the last one can only be
    /// removed.
    DubboInterfaces {
        /// The protocol of the URLs that are registered: `dubbo`, or `tri`.
        protocol: String,
    },
    /// Dubbo 3.1 or later with applications: `/services/<application>/<host>:<port>`. Instances can only be steered: their
    /// consumers need metadata that only the application has. Consumers of Dubbo 3.0 take no notice before another instance
    /// comes or goes.
    DubboApplications,
}

/// A client of ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<Server>,
    addresses: Vec<String>,
    timeout: Duration,
    layout: Layout,
    /// The address that has answered the last change.
    writer: AtomicUsize,
    /// The watch of each address, and the number of its events that were reported.
    watches: Mutex<HashMap<usize, Watch>>,
}

#[derive(Debug)]
enum Layout {
    Applications(Applications),
    Interfaces(Interfaces),
}

#[derive(Clone, Debug)]
struct Watch {
    events: watch::Receiver<u64>,
    reported: u64,
}

impl ZooKeeper {
    /// Returns a client. The addresses are of the form `host:port`. It connects when it is used.
    ///
    /// # Errors
    /// Fails if an address, the TLS options, the credentials or the base path are unusable.
    pub fn new(connection: &Connection, options: &ZooKeeperOptions) -> Result<Self, String> {
        let user = match &connection.credentials {
            Credentials::Anonymous => None,
            Credentials::Password { user, .. } if user.contains(':') => {
                return Err("the name of a user of ZooKeeper cannot contain ':'".to_owned());
            }
            Credentials::Password { user, password } => {
                Some(ZooKeeperUser { name: user.clone(), password: password.clone() })
            }
            Credentials::Token(_) => {
                return Err("ZooKeeper needs a user and a password, not a token".to_owned());
            }
        };
        let tls = connection.tls.as_ref().map(|tls| tls.client_config()).transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let large = LargeReads::default();
        let server = |address: &String| {
            Server::new(address, Arc::clone(&connection.dialer), tls.clone(), user.clone(), large.clone())
        };
        Ok(Self {
            servers: connection.addresses.iter().map(server).collect::<Result<_, String>>()?,
            addresses: connection.addresses.clone(),
            timeout: connection.timeout,
            layout: Layout::new(options)?,
            writer: AtomicUsize::new(0),
            watches: Mutex::default(),
        })
    }

    fn calls<'a>(&'a self, address: usize, doing: &'a str) -> Result<Calls<'a>, RegistryError> {
        let server = at_address(&self.servers, address, doing)?;
        Ok(Calls::new(server, doing, Instant::now() + self.timeout))
    }

    /// Makes a change at the first address that serves, from the one on that did last.
    async fn write_one(&self, change: &Change, may_change: MayChange<'_>) -> Result<(), RegistryError> {
        let doing = change.to_string();
        let start = self.writer.load(Ordering::Relaxed);
        let mut last = None;
        for offset in 0..self.servers.len() {
            let address = (start + offset) % self.servers.len();
            // The address before may have taken the whole time of a call.
            may_change(change)?;
            let calls = self.calls(address, &doing)?.changing(change, may_change);
            let result = match &self.layout {
                Layout::Applications(layout) => layout.write(&calls, change).await,
                Layout::Interfaces(layout) => layout.write(&calls, change).await,
            };
            match result {
                // Nothing was changed.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                result => {
                    self.writer.store(address, Ordering::Relaxed);
                    return result;
                }
            }
        }
        Err(last.unwrap_or_else(|| RegistryError {
            doing,
            address: "no address".to_owned(),
            reason: "there is no address".to_owned(),
            kind: RegistryErrorKind::Rejected,
        }))
    }

    /// Returns a watch of everything below the base, or `None` if the server has none (before ZooKeeper 3.6).
    async fn watch(&self, address: usize, doing: &str) -> Result<Option<Watch>, RegistryError> {
        let calls = self.calls(address, doing)?;
        let path = match self.layout.base() {
            "" => "/".to_owned(),
            base => base.to_owned(),
        };
        let events = calls.server.session().await.map_err(|cause| calls.server.error(doing, cause))?.events();
        let answer = calls.call(Request::Watch { path }, MAX_SMALL).await?;
        if codes::is_unimplemented(answer.code) {
            return Ok(None);
        }
        if answer.code != 0 {
            return Err(calls.server.error(doing, codes::describe(answer.code, false)));
        }
        let reported = *events.borrow();
        Ok(Some(Watch { events, reported }))
    }
}

impl Layout {
    fn new(options: &ZooKeeperOptions) -> Result<Self, String> {
        let base = |default: &str| match options.base.as_str() {
            "" => Ok(default.to_owned()),
            base => path::base(base),
        };
        Ok(match &options.layout {
            ZooKeeperLayout::Curator => {
                Self::Applications(Applications { base: base("/services")?, own: true })
            }
            ZooKeeperLayout::DubboApplications => {
                Self::Applications(Applications { base: base("/services")?, own: false })
            }
            ZooKeeperLayout::DubboInterfaces { protocol } => {
                if protocol.is_empty() || !protocol.chars().all(|char| char.is_ascii_alphanumeric()) {
                    return Err(format!("{protocol:?} is not a protocol of Dubbo"));
                }
                Self::Interfaces(Interfaces { base: base("/dubbo")?, protocol: protocol.clone() })
            }
        })
    }

    fn base(&self) -> &str {
        match self {
            Self::Applications(layout) => &layout.base,
            Self::Interfaces(layout) => &layout.base,
        }
    }

    /// Returns the name of a service, or `None` if the node is something else.
    fn service(&self, name: String) -> Option<ServiceKey> {
        let name = match self {
            Self::Applications(_) => name,
            Self::Interfaces(_) if NO_INTERFACES.contains(&name.as_str()) => return None,
            Self::Interfaces(_) => dubbo_url::decoded(&name)?,
        };
        Some(ServiceKey { name, ..ServiceKey::default() })
    }
}

#[async_trait]
impl Registry for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        let (own, is_of_dubbo_2) = match &self.layout {
            Layout::Applications(layout) => (layout.own, false),
            Layout::Interfaces(_) => (true, true),
        };
        Capabilities {
            own,
            steer: true,
            by_address: is_of_dubbo_2,
            weights: is_of_dubbo_2,
            renewal: None,
            batch: BATCH,
            list_lag: Duration::ZERO,
            cache: if own && !is_of_dubbo_2 { CACHE_OF_SPRING } else { CACHE_OF_DUBBO },
        }
    }

    fn check_weight(&self, weight: f64) -> Result<(), String> {
        match self.layout {
            Layout::Applications(_) => Ok(()),
            Layout::Interfaces(_) => interfaces::check_weight(weight),
        }
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, address: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let base = self.layout.base();
        let doing = format!("list the services below {base}/");
        let path = if base.is_empty() { "/" } else { base };
        let names = self.calls(address, &doing)?.children(path).await?.unwrap_or_default();
        Ok(names.into_iter().filter_map(|name| self.layout.service(name)).collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        self.listed(address, service).await?.complete()
    }

    async fn listed(&self, address: usize, service: &ServiceKey) -> Result<Listed, RegistryError> {
        let doing = format!("read the instances of service {}", service.name);
        let calls = self.calls(address, &doing)?;
        match &self.layout {
            Layout::Applications(layout) => layout.listed(&calls, service).await,
            Layout::Interfaces(layout) => {
                let instances = layout.instances(&calls, service).await?;
                Ok(Listed { instances, unreadable: Vec::new() })
            }
        }
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let doing = format!("read {}:{} of service {}", wanted.host, wanted.port, service.name);
        let calls = self.calls(address, &doing)?;
        match &self.layout {
            Layout::Applications(layout) => layout.instance(&calls, service, wanted).await,
            Layout::Interfaces(layout) => layout.instance(&calls, service, wanted).await,
        }
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let calls: Vec<_> = changes.iter().map(|change| self.write_one(change, may_change)).collect();
        stream::iter(calls).buffered(CONCURRENCY).collect().await
    }

    async fn changed(&self, address: usize, _: &[ServiceKey]) -> Result<(), RegistryError> {
        let doing = format!("watch the nodes below {}/", self.layout.base());
        let present = self.watches.lock().get(&address).cloned();
        let Some(mut watch) = present else {
            let Some(watch) = self.watch(address, &doing).await? else { return std::future::pending().await };
            self.watches.lock().insert(address, watch);
            return Ok(());
        };
        let seen = watch.reported;
        let count = watch.events.wait_for(|count| *count != seen).await.map(|count| *count).ok();
        let mut watches = self.watches.lock();
        match count {
            Some(reported) => watches.insert(address, Watch { reported, ..watch }),
            // The session has ended: changes may have been missed, and the next call watches again.
            None => watches.remove(&address),
        };
        Ok(())
    }
}
