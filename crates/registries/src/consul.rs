//! Consul, by its catalog.
//!
//! The instances belong to a node of the catalog that exists nowhere else: an agent removes what it does not know from its
//! own node (<https://github.com/hashicorp/consul/issues/7513>). Nobody runs the checks of a catalog node, so a check says
//! whether an instance is in service: `passing` or `critical`. Instances that agents registered cannot be steered: their
//! agents would write their own state again.

mod transaction;
mod weight;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use parking_lot::Mutex;
use secrecy::ExposeSecret;

use crate::connection::{Connection, Credentials};
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::http_client::{HttpClient, HttpResponse, escaped};
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::limits::Bounded;
use crate::owner::Owner;
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::wire::{HealthEntry, NodeNames};

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");
const INDEX: &str = "x-consul-index";
/// Says that the answer lacks what the token may not read. Consul does not send it to clients without a token.
const FILTERED: &str = "x-consul-results-filtered-by-acls";
/// Consul accepts 128 operations in a transaction (`maxTxnOps`). A change needs up to two, and one creates the node.
const BATCH: usize = 63;
/// Clients of Consul usually watch with blocking queries. Others ask again after some seconds.
const CACHE: Duration = Duration::from_secs(5);
/// The longest time that Consul may keep a blocking query. It adds up to a sixteenth of it.
const WATCH: Duration = Duration::from_secs(60);
/// Between two watches without a change. Consul waits itself, and something in between may answer at once.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// What is special about a Consul.
#[derive(Clone, Debug, Default)]
pub struct ConsulOptions {
    /// The name of the node in the catalog that the instances belong to. No agent may have it.
    pub node: String,
    /// The datacenter. Empty for that of the server.
    pub datacenter: String,
    /// The admin partition of Consul Enterprise. Empty for the default.
    pub partition: String,
}

/// A client of Consul.
pub struct Consul {
    http: HttpClient,
    addresses: Vec<String>,
    token: Option<HeaderValue>,
    options: ConsulOptions,
    /// The index of the last answer to a blocking query, by address.
    indexes: Mutex<HashMap<usize, u64>>,
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, options, .. } = self;
        f.debug_struct("Consul")
            .field("addresses", addresses)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl Consul {
    /// Returns a client. The addresses are URLs without a path, such as `http://consul-0.consul:8500`.
    ///
    /// # Errors
    /// Fails if the TLS options or the credentials are unusable, or if the name of the node is empty.
    pub fn new(connection: &Connection, options: ConsulOptions) -> Result<Self, String> {
        if options.node.is_empty() {
            return Err("the name of Consul's node is empty".to_owned());
        }
        let token = match &connection.credentials {
            Credentials::Anonymous => None,
            Credentials::Token(token) => {
                let mut value = HeaderValue::from_str(token.expose_secret())
                    .map_err(|_| "the token contains characters that no token of Consul has".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
            Credentials::Password { .. } => return Err("Consul needs a token, not a password".to_owned()),
        };
        let addresses = connection.addresses.iter().map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            http: HttpClient::new(connection)?,
            addresses: addresses.collect(),
            token,
            options,
            indexes: Mutex::default(),
        })
    }

    fn address(&self, index: usize) -> Result<&str, RegistryError> {
        at_address(&self.addresses, index, "call Consul").map(String::as_str)
    }

    /// Returns a request. `query` are further parameters, each with a leading `&`.
    fn request(
        &self,
        method: Method,
        address: &str,
        path: &str,
        query: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let parameter = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("&{name}={}", escaped(value)),
        };
        let uri = format!(
            "{address}{path}?{}",
            format!(
                "{}{}{query}",
                parameter("dc", &self.options.datacenter),
                parameter("partition", &self.options.partition)
            )
            .trim_start_matches('&')
        );
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(TOKEN, token.clone());
        }
        Ok(request)
    }

    /// Reads from one server's own state. `doing` is for errors.
    async fn get(
        &self,
        address: usize,
        path: &str,
        query: &str,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        self.read(self.address(address)?, path, &format!("&stale{query}"), doing).await
    }

    /// Reads from the leader, by the server at `address`, unless the query says otherwise.
    async fn read(
        &self,
        address: &str,
        path: &str,
        query: &str,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        let response = self.send(address, path, query, doing).await?;
        if response.status.is_success() { Ok(response) } else { Err(response.failure(doing, address)) }
    }

    /// As [`read`](Self::read), and returns the response whatever its status.
    async fn send(
        &self,
        address: &str,
        path: &str,
        query: &str,
        doing: &str,
    ) -> Result<HttpResponse, RegistryError> {
        let request = self.request(Method::GET, address, path, query, Bytes::new());
        let request = request.map_err(|reason| invalid_request(doing, address, reason))?;
        self.http.send(request, doing).await
    }

    /// Checks that an answer is complete: what the token may not read is not absent. `rights` are those that it needs.
    fn check_complete(
        &self,
        response: &HttpResponse,
        rights: &str,
        doing: &str,
        address: &str,
    ) -> Result<(), RegistryError> {
        if response.headers.get(FILTERED).is_none_or(|value| value != "true") {
            return Ok(());
        }
        let reason = format!(
            "the answer lacks what the token may not read, so it is not known whether an instance is registered; give the \
             token {rights}"
        );
        Err(RegistryError { kind: RegistryErrorKind::Denied, ..invalid_request(doing, address, reason) })
    }

    /// The rights to see all services of the node.
    fn node_rights(&self) -> String {
        format!(
            "node:read for node {:?} and service:read for all of its services, or set consul.node to a node of its own",
            self.options.node
        )
    }

    fn node_path(&self) -> String {
        format!("/v1/catalog/node-services/{}", escaped(&self.options.node))
    }
}

fn invalid_request(doing: &str, address: &str, reason: String) -> RegistryError {
    RegistryError {
        doing: doing.to_owned(),
        address: address.to_owned(),
        reason,
        kind: RegistryErrorKind::Rejected,
    }
}

#[async_trait]
impl Registry for Consul {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: false,
            by_address: false,
            weights: true,
            renewal: None,
            batch: BATCH,
            list_lag: Duration::ZERO,
            cache: CACHE,
        }
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn check_weight(&self, weight: f64) -> Result<(), String> {
        weight::check(weight)
    }

    async fn services(&self, address: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let doing = format!("list the services of node {}", self.options.node);
        let at = self.address(address)?;
        let response = self.send(at, &self.node_path(), "&stale&ns=*", &doing).await?;
        let response = match response.status {
            // Without Enterprise there are no namespaces.
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => {
                drop(response);
                self.get(address, &self.node_path(), "", &doing).await?
            }
            status if status.is_success() => response,
            _ => return Err(response.failure(&doing, at)),
        };
        self.check_complete(&response, &self.node_rights(), &doing, at)?;
        let found: NodeNames = response.json(&doing, at)?;
        let keys = found.services.0.into_iter().map(|service| ServiceKey {
            namespace: service.namespace,
            group: String::new(),
            name: service.service,
        });
        Ok(keys.collect::<BTreeSet<_>>().into_iter().collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let doing = format!("read the instances of service {}", service.name);
        let path = format!("/v1/health/service/{}", escaped(&service.name));
        let query = match service.namespace.as_str() {
            "" => String::new(),
            namespace => format!("&ns={}", escaped(namespace)),
        };
        let at = self.address(address)?;
        let response = self.get(address, &path, &query, &doing).await?;
        let rights = format!(
            "service:read for service {:?} and node:read for all nodes that have instances of it",
            service.name
        );
        self.check_complete(&response, &rights, &doing, at)?;
        let entries: Bounded<HealthEntry> = response.json(&doing, at)?;
        Ok(entries.0.into_iter().map(|entry| self.instance(entry)).collect())
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        self.write_all(changes, may_change).await
    }

    async fn changed(&self, address: usize, _: &[ServiceKey]) -> Result<(), RegistryError> {
        let doing = format!("watch node {}", self.options.node);
        let at = self.address(address)?;
        // The health of a node changes with its services, too.
        let path = format!("/v1/health/node/{}", escaped(&self.options.node));
        loop {
            let before = self.indexes.lock().get(&address).copied();
            let query = match before {
                Some(index) => format!("&stale&index={index}&wait={}s", WATCH.as_secs()),
                None => "&stale".to_owned(),
            };
            let request = self.request(Method::GET, at, &path, &query, Bytes::new());
            let request = request.map_err(|reason| invalid_request(&doing, at, reason))?;
            let response = self.http.watch(request, &doing, WATCH * 2).await?;
            if !response.status.is_success() {
                return Err(response.failure(&doing, at));
            }
            let index = response.headers.get(INDEX).and_then(|index| index.to_str().ok()?.parse().ok());
            // An index that goes back, or 0, means that the server has lost its state.
            let index = index.filter(|index| *index > 0);
            match index {
                Some(index) => self.indexes.lock().insert(address, index),
                None => self.indexes.lock().remove(&address),
            };
            if before != index {
                return Ok(());
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    }
}

impl Consul {
    fn instance(&self, entry: HealthEntry) -> Instance {
        let HealthEntry { node, service, checks } = entry;
        let is_ours = node.node == self.options.node;
        Instance {
            id: service.id,
            host: if service.address.is_empty() { node.address } else { service.address },
            port: service.port,
            cluster: String::new(),
            weight: f64::from(service.weights.passing),
            // On other nodes nothing is ours, whatever its metadata says.
            metadata: if is_ours { service.meta.0 } else { without_owner(service.meta.0) },
            in_service: !checks.has_critical,
            may_return: checks.has_critical && !checks.is_held_out,
            version: Some(InstanceVersion(service.modify_index)),
        }
    }
}

fn without_owner(mut metadata: BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata.retain(|key, _| !Owner::KEYS.contains(&key.as_str()));
    metadata
}
