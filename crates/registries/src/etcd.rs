//! etcd, by its gRPC interface.
//!
//! Instances are keys in the format of `go.etcd.io/etcd/client/v3/naming/endpoints`, which gRPC for Go resolves:
//! `<prefix>/<service>/<id>` with the value `{"Op":0,"Addr":"<host>:<port>","Metadata":{...}}`, or of templates. Unless they
//! are to have a lease, they stay when Podward is down. Every change is conditional on the revision of its key. There is no
//! state "out of service".

mod calls;
mod format;
mod lease;
mod read;
mod renewal;
mod transaction;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use crate::connection::{Connection, Credentials};
use crate::detail::DetailLog;
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::http_client::DialConnector;
use crate::instance::{Instance, InstanceVersion, ServiceKey};
use crate::limits::{Exceeded, Instances, LargeReads, MAX_INSTANCES};
use crate::listed::{Listed, Unreadable, has_mark, owner_in, shown};
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::calls::{CallKind, EtcdServer, EtcdUser, MAX_MESSAGE};
use self::format::{Format, PodKey};
use self::lease::Lease;
use self::proto::watch_client::WatchClient;
use self::proto::{KeyValue, WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion};

/// The generated code.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

/// etcd accepts 128 operations in a transaction (`--max-txn-ops`). Each change is a transaction within one.
const BATCH: usize = 100;
/// The interval of pings while there is a call.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Clients of etcd watch.
const CACHE: Duration = Duration::from_secs(5);

/// What is special about an etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// What begins all keys, such as `/services`. Empty if keys begin with the name of the service.
    pub prefix: String,
    /// How instances are stored. `None` for the format of `naming/endpoints`.
    pub template: Option<EtcdTemplate>,
    /// After this time without a bridge, etcd deletes the keys. `None` if they stay.
    pub lease: Option<Duration>,
}

/// How instances are stored in a format of its own. Both are templates with fields as [`HttpOptions`](crate::HttpOptions)
/// has them.
#[derive(Clone, Debug, Default)]
pub struct EtcdTemplate {
    /// The whole key. Its first field is `${service}`, which a text follows. After it come `${id}`, or `${host}` and
    /// `${port}`.
    pub key: String,
    /// JSON whose strings are templates. It contains `"${metadata}"`, and host and port unless the key does.
    pub value: String,
}

/// A client of etcd.
#[derive(Debug)]
pub struct Etcd {
    servers: Vec<EtcdServer>,
    addresses: Vec<String>,
    user: Option<EtcdUser>,
    timeout: Duration,
    format: Format,
    lease: Option<Lease>,
    /// The revision up to which changes have been reported, by address.
    revisions: Mutex<HashMap<usize, i64>>,
    large: LargeReads,
}

impl Etcd {
    /// Returns a client. The addresses are of the form `host:port`. It connects when it is used.
    ///
    /// # Errors
    /// Fails if an address, the TLS options, the credentials or a template are unusable.
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
            format: Format::new(
                &options.prefix,
                options.template.as_ref().map(|it| (it.key.as_str(), it.value.as_str())),
            )?,
            lease: options.lease.map(Lease::new),
            revisions: Mutex::default(),
            large: LargeReads::default(),
        })
    }

    fn server(&self, index: usize) -> Result<&EtcdServer, RegistryError> {
        at_address(&self.servers, index, "call etcd")
    }

    /// Returns the entry of a key that stores no readable instance, if it may be that of a pod.
    fn unreadable(
        &self,
        address: usize,
        doing: &str,
        service: &ServiceKey,
        pair: &KeyValue,
    ) -> Option<Unreadable> {
        let path = self.format.path(Some(service));
        let rest = std::str::from_utf8(&pair.key).ok()?.strip_prefix(&path)?;
        let PodKey { id, host, port } = self.format.pod_key(rest)?;
        let error = self.not_readable(address, doing, &pair.key);
        let (owner, is_marked) = (owner_in(&pair.value), has_mark(&pair.value));
        Some(Unreadable { id, host, port, owner, is_marked, error })
    }

    /// Returns the instance that a key of a service stores.
    fn instance_of(&self, service: &ServiceKey, pair: &KeyValue) -> Option<Instance> {
        let path = self.format.path(Some(service));
        let rest = std::str::from_utf8(&pair.key).ok()?.strip_prefix(&path)?;
        let version = u64::try_from(pair.mod_revision).ok().map(InstanceVersion);
        Some(Instance { version, ..self.format.instance(rest, &pair.value)? })
    }

    /// Returns the error of a key that may be that of a pod, and whose value nobody understands.
    fn not_readable(&self, address: usize, doing: &str, key: &[u8]) -> RegistryError {
        let key = shown(&String::from_utf8_lossy(key));
        RegistryError {
            doing: doing.to_owned(),
            address: self.addresses.get(address).cloned().unwrap_or_default(),
            reason: format!(
                "the value of key {key} is not an instance that Podward can read, so it is not known whether the pod is \
                 registered; correct or delete the key"
            ),
            kind: RegistryErrorKind::Invalid,
        }
    }

    fn no_address(&self, doing: &str) -> RegistryError {
        RegistryError {
            doing: doing.to_owned(),
            address: "no address".to_owned(),
            reason: "there is no address".to_owned(),
            kind: RegistryErrorKind::Rejected,
        }
    }
}

fn server(connection: &Connection, address: &str) -> Result<EtcdServer, String> {
    let scheme = if connection.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|_| format!("{address:?} is not of the form <host>:<port>"))?
        .connect_timeout(connection.timeout)
        // A watch would not notice that its connection is dead. A server accepts a ping every 5 s
        // (`--grpc-keepalive-min-time`), and none while there is no call.
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(connection.timeout)
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
    let details = DetailLog::new(&connection.credentials);
    Ok(EtcdServer { address: address.to_owned(), channel, token: Mutex::default(), details })
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

#[async_trait]
impl Registry for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: false,
            by_address: self.format.by_address(),
            weights: self.format.has_weight(),
            renewal: self.lease.as_ref().map(Lease::interval),
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
        let path = self.format.path(None);
        let doing = format!("list the services below {path:?}");
        let mut names = BTreeSet::new();
        let visit = |pair: KeyValue| {
            let rest = std::str::from_utf8(&pair.key).ok().and_then(|key| key.strip_prefix(&path));
            if let Some(name) = rest.and_then(|rest| self.format.service(rest)) {
                names.insert(name.to_owned());
            }
            if names.len() > MAX_INSTANCES { Err(Exceeded::Names) } else { Ok(()) }
        };
        self.read(address, &path, true, &doing, visit).await?;
        Ok(names.into_iter().map(|name| ServiceKey { name, ..ServiceKey::default() }).collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        self.listed(address, service).await?.complete()
    }

    async fn listed(&self, address: usize, service: &ServiceKey) -> Result<Listed, RegistryError> {
        let path = self.format.path(Some(service));
        let doing = format!("read the instances of service {}", service.name);
        let (mut found, mut keys, mut unreadable) = (Instances::default(), 0, Vec::new());
        let visit = |pair: KeyValue| {
            keys += 1;
            // Also those that are no instances.
            if keys > MAX_INSTANCES {
                return Err(Exceeded::Names);
            }
            match self.instance_of(service, &pair) {
                Some(instance) => found.push(instance)?,
                None => unreadable.extend(self.unreadable(address, &doing, service, &pair)),
            }
            Ok(())
        };
        self.read(address, &path, false, &doing, visit).await?;
        Ok(Listed { instances: found.into_vec(), unreadable })
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        if self.format.may_move() {
            let Listed { instances, unreadable } = self.listed(address, service).await?;
            return match unreadable.into_iter().find(|entry| entry.id == wanted.id) {
                Some(entry) => Err(entry.error),
                None => Ok(instances.into_iter().find(|found| found.id == wanted.id)),
            };
        }
        let doing = format!("read {}:{} of service {}", wanted.host, wanted.port, service.name);
        // Without a key it cannot be stored.
        let Ok(key) = self.format.key(service, wanted) else { return Ok(None) };
        let Some(pair) = self.read_key(address, key, &doing).await? else { return Ok(None) };
        match self.instance_of(service, &pair) {
            None => Err(self.not_readable(address, &doing, &pair.key)),
            found => Ok(found),
        }
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        self.write_all(changes, may_change).await
    }

    async fn renew_while(
        &self,
        instances: &[(ServiceKey, Instance)],
        may_change: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        match &self.lease {
            Some(_) => self.renew_all(instances, may_change).await,
            None => instances.iter().map(|_| Ok(true)).collect(),
        }
    }

    async fn changed(&self, address: usize, _: &[ServiceKey]) -> Result<(), RegistryError> {
        let path = self.format.path(None);
        let doing = format!("watch the keys below {path:?}");
        let server = self.server(address)?;
        let seen = self.revisions.lock().get(&address).copied();
        let Some(seen) = seen else {
            let revision = self.revision(server, &path, &doing).await?;
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
            let message = match stream.message().await {
                // There are many events at once.
                Err(status) if status.code() == Code::OutOfRange => {
                    self.revisions.lock().remove(&address);
                    return Ok(());
                }
                message => message.map_err(|status| failed(&status))?,
            };
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
