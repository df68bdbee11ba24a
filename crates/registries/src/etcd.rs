//! etcd, by its gRPC interface.
//!
//! Instances are keys in the format of `go.etcd.io/etcd/client/v3/naming/endpoints`, which gRPC for Go resolves:
//! `<prefix>/<service>/<id>` with the value `{"Op":0,"Addr":"<host>:<port>","Metadata":{...}}`. They have no lease, so they
//! stay when Podward is down. Every change is conditional on the revision of its key. There is no state "out of service".

mod calls;
mod transaction;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::connection::{Connection, Credentials};
use crate::error::{RegistryError, at_address};
use crate::http_client::DialConnector;
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::registry::{Capabilities, Change, Registry};

use self::calls::{CallKind, EtcdServer, EtcdUser, MAX_MESSAGE};
use self::proto::kv_client::KvClient;
use self::proto::watch_client::WatchClient;
use self::proto::{
    KeyValue, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
};

/// The generated code.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

/// etcd accepts 128 operations in a transaction (`--max-txn-ops`). Each change is a transaction within one.
const BATCH: usize = 100;
/// Clients of etcd watch.
const CACHE: Duration = Duration::from_secs(5);
/// The number of keys in a response.
const PAGE: i64 = 1000;

/// What is special about an etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// What begins all keys, such as `/services`. Empty if keys begin with the name of the service.
    pub prefix: String,
}

/// A client of etcd.
#[derive(Debug)]
pub struct Etcd {
    servers: Vec<EtcdServer>,
    addresses: Vec<String>,
    user: Option<EtcdUser>,
    timeout: Duration,
    /// Without a slash at the end.
    prefix: String,
    /// The revision up to which changes have been reported, by address.
    revisions: Mutex<HashMap<usize, i64>>,
}

/// The value of a key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct EndpointValue {
    #[serde(default)]
    op: u8,
    addr: String,
    #[serde(default)]
    metadata: Option<serde_json::Value>,
}

impl Etcd {
    /// Returns a client. The addresses are of the form `host:port`. It connects when it is used.
    ///
    /// # Errors
    /// Fails if an address, the TLS options or the credentials are unusable.
    pub fn new(connection: &Connection, options: &EtcdOptions) -> Result<Self, String> {
        let user = match &connection.credentials {
            Credentials::Anonymous => None,
            Credentials::Password { user, password } => {
                Some(EtcdUser { name: user.clone(), password: password.clone() })
            }
            Credentials::Token(_) => return Err("etcd needs a user and a password, not a token".to_owned()),
        };
        let servers = connection.addresses.iter().map(|address| server(connection, address));
        Ok(Self {
            servers: servers.collect::<Result<_, String>>()?,
            addresses: connection.addresses.clone(),
            user,
            timeout: connection.timeout,
            prefix: options.prefix.trim_end_matches('/').to_owned(),
            revisions: Mutex::default(),
        })
    }

    fn server(&self, index: usize) -> Result<&EtcdServer, RegistryError> {
        at_address(&self.servers, index, "call etcd")
    }

    /// What the keys of a service begin with, or those of all services.
    fn path(&self, service: Option<&ServiceKey>) -> String {
        match (service, self.prefix.as_str()) {
            (Some(service), "") => format!("{}/", service.name),
            (Some(service), prefix) => format!("{prefix}/{}/", service.name),
            (None, "") => String::new(),
            (None, prefix) => format!("{prefix}/"),
        }
    }

    fn key(&self, service: &ServiceKey, instance: &Instance) -> Vec<u8> {
        format!("{}{}", self.path(Some(service)), instance.id).into_bytes()
    }

    /// Reads all keys that begin with `path`, of one revision, from the server's own state.
    async fn read(
        &self,
        address: usize,
        path: &str,
        keys_only: bool,
        doing: &str,
    ) -> Result<(Vec<KeyValue>, i64), RegistryError> {
        let server = self.server(address)?;
        let (mut found, mut revision) = (Vec::new(), 0);
        let end = range_end(path.as_bytes());
        let mut key = if path.is_empty() { vec![0] } else { path.as_bytes().to_vec() };
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit: PAGE,
                revision,
                serializable: true,
                keys_only,
            };
            let call = |context: Request<()>| {
                let mut client = KvClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
                let request = context.map(|()| request.clone());
                async move { client.range(request).await }
            };
            let answer = server.call(self.user.as_ref(), self.timeout, (doing, CallKind::Read), call).await?;
            if revision == 0 {
                revision = answer.header.map(|header| header.revision).unwrap_or_default();
            }
            // The smallest key after the last one.
            if let Some(last) = answer.kvs.last() {
                key = [last.key.as_slice(), &[0]].concat();
            }
            let is_last = !answer.more || answer.kvs.is_empty();
            found.extend(answer.kvs);
            if is_last {
                return Ok((found, revision));
            }
        }
    }
}

fn server(connection: &Connection, address: &str) -> Result<EtcdServer, String> {
    let scheme = if connection.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|_| format!("{address:?} is not of the form <host>:<port>"))?
        .connect_timeout(connection.timeout)
        .tcp_nodelay(true);
    if let Some(tls) = &connection.tls {
        // Reports what is wrong with them.
        tls.client_config()?;
        let mut config = ClientTlsConfig::new();
        config = match &tls.authorities {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        };
        if let Some((chain, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(chain, key.expose_secret()));
        }
        endpoint =
            endpoint.tls_config(config).map_err(|error| format!("the TLS options are unusable: {error}"))?;
    }
    let connector = DialConnector::new(connection);
    let channel = endpoint.connect_with_connector_lazy(connector);
    Ok(EtcdServer { address: address.to_owned(), channel, token: Mutex::default() })
}

/// Returns the first key after all keys that begin with `path`.
fn range_end(path: &[u8]) -> Vec<u8> {
    let mut end = path.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // From the key on, all keys.
    vec![0]
}

fn text_of(instance: &Instance) -> Result<Vec<u8>, serde_json::Error> {
    let host = match instance.host.contains(':') {
        true => format!("[{}]", instance.host),
        false => instance.host.clone(),
    };
    let metadata = serde_json::to_value(&instance.metadata)?;
    let addr = format!("{host}:{}", instance.port);
    serde_json::to_vec(&EndpointValue { op: 0, addr, metadata: Some(metadata) })
}

/// Returns the instance of a key. `None` if it is not an endpoint.
fn instance(id: &str, pair: &KeyValue) -> Option<Instance> {
    let value: EndpointValue = serde_json::from_slice(&pair.value).ok()?;
    let (host, port) = value.addr.rsplit_once(':')?;
    let metadata: BTreeMap<String, String> = match value.metadata {
        Some(serde_json::Value::Object(fields)) => {
            fields.into_iter().filter_map(|(key, text)| Some((key, text.as_str()?.to_owned()))).collect()
        }
        _ => BTreeMap::new(),
    };
    Some(Instance {
        id: id.to_owned(),
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: port.parse().ok()?,
        cluster: String::new(),
        weight: 1.0,
        metadata,
        in_service: true,
        version: u64::try_from(pair.mod_revision).ok().map(InstanceVersion),
    })
}

#[async_trait]
impl Registry for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: false,
            by_address: false,
            weights: false,
            renewal: None,
            batch: BATCH,
            list_lag: Duration::ZERO,
            cache: CACHE,
        }
    }

    fn can_take_out_of_service(&self) -> bool {
        false
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, address: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let path = self.path(None);
        let doing = format!("list the services below {path:?}");
        let (pairs, _) = self.read(address, &path, true, &doing).await?;
        let names: BTreeSet<String> = pairs
            .iter()
            .filter_map(|pair| {
                let key = std::str::from_utf8(&pair.key).ok()?.strip_prefix(&path)?;
                let (service, _) = key.rsplit_once('/')?;
                Some(service.to_owned())
            })
            .collect();
        Ok(names.into_iter().map(|name| ServiceKey { name, ..ServiceKey::default() }).collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let path = self.path(Some(service));
        let doing = format!("read the instances of service {}", service.name);
        let (pairs, _) = self.read(address, &path, false, &doing).await?;
        let found = pairs.iter().filter_map(|pair| {
            let id = std::str::from_utf8(&pair.key).ok()?.strip_prefix(&path)?;
            // Further slashes belong to the name of another service.
            if id.contains('/') { None } else { instance(id, pair) }
        });
        Ok(found.collect())
    }

    async fn write(&self, changes: &[Change]) -> Vec<Result<(), RegistryError>> {
        self.write_all(changes).await
    }

    async fn changed(&self, address: usize, _: &[ServiceKey]) -> Result<(), RegistryError> {
        let path = self.path(None);
        let doing = format!("watch the keys below {path:?}");
        let server = self.server(address)?;
        let seen = self.revisions.lock().get(&address).copied();
        let Some(seen) = seen else {
            let (_, revision) = self.read(address, &path, true, &doing).await?;
            self.revisions.lock().insert(address, revision);
            return Ok(());
        };
        let create = WatchCreateRequest {
            key: if path.is_empty() { vec![0] } else { path.as_bytes().to_vec() },
            range_end: range_end(path.as_bytes()),
            start_revision: seen + 1,
        };
        let call = |context: Request<()>| {
            let mut client = WatchClient::new(server.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
            let first = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create.clone())) };
            // The stream of requests stays open: its end ends the watch.
            let requests = tokio_stream::StreamExt::chain(tokio_stream::once(first), tokio_stream::pending());
            let request = context.map(|()| requests);
            async move { client.watch(request).await }
        };
        let user = self.user.as_ref();
        let mut stream = server.call(user, self.timeout, (&doing, CallKind::Read), call).await?;
        let failed = |status: &Status| server.error(&doing, CallKind::Read, status);
        loop {
            let message = stream.message().await.map_err(|status| failed(&status))?;
            let ended = || Status::unavailable("the watch has ended");
            let WatchResponse { header, canceled, events } = message.ok_or_else(|| failed(&ended()))?;
            if canceled {
                // The revision is compacted, or of a state that the server has lost.
                self.revisions.lock().remove(&address);
                return Ok(());
            }
            if !events.is_empty() {
                let revision = header.map(|header| header.revision).unwrap_or(seen);
                self.revisions.lock().insert(address, revision);
                return Ok(());
            }
        }
    }
}
