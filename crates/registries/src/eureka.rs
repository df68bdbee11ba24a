//! Eureka of Netflix and Spring Cloud.
//!
//! Registrations have to be renewed. An instance is out of service by an override of its status, which stays when the
//! application renews its registration, so instances of applications can be steered. Names of applications do not depend on
//! the case; they are returned in upper case, as Eureka does.
//!
//! Lists come from a cache of the server that is 30 s old at most by default ([`EurekaOptions::response_cache`]); single
//! instances do not.

mod wire;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{self, StreamExt as _};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use secrecy::ExposeSecret;

use crate::connection::{Connection, Credentials};
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::http_client::{HttpClient, HttpResponse, escaped};
use crate::instance::{Instance, ServiceKey};
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::wire::{
    AllApplications, DataCenter, Lease, OUT_OF_SERVICE, OneApplication, OneInstance, RegisteredInstance,
    RegisteredPort, Registration, StoredInstance, StoredPort, UNKNOWN, UP,
};

/// The number of calls at the same time. Eureka has no calls for several instances.
const CONCURRENCY: usize = 16;
const BATCH: usize = 256;
/// The interval at which clients read (30 s), and that of Ribbon or Spring's load balancer (30 and 35 s). The cache of the
/// server comes before.
const CACHE: Duration = Duration::from_secs(65);

/// What is special about a Eureka.
#[derive(Clone, Copy, Debug)]
pub struct EurekaOptions {
    /// The interval at which registrations are renewed.
    pub renewal: Duration,
    /// The time after which Eureka removes an instance that was not renewed.
    pub lease: Duration,
    /// How long lists may be older than the registry: `responseCacheUpdateIntervalMs` of the server. Zero if
    /// `shouldUseReadOnlyResponseCache` is false.
    pub response_cache: Duration,
}

impl Default for EurekaOptions {
    fn default() -> Self {
        Self {
            renewal: Duration::from_secs(30),
            lease: Duration::from_secs(90),
            response_cache: Duration::from_secs(30),
        }
    }
}

/// A client of Eureka.
pub struct Eureka {
    http: HttpClient,
    addresses: Vec<String>,
    authorization: Option<HeaderValue>,
    options: EurekaOptions,
    /// The address that calls to any address begin with: it has served, or another one has not.
    writer: AtomicUsize,
}

impl fmt::Debug for Eureka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, options, .. } = self;
        f.debug_struct("Eureka")
            .field("addresses", addresses)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

/// A response, and the address that it came from.
struct Answer<'a> {
    response: HttpResponse,
    address: &'a str,
}

impl Eureka {
    /// Returns a client. The addresses are URLs with the path of the interface: `http://eureka:8761/eureka` for Spring Cloud,
    /// `http://eureka:8080/eureka/v2` for Netflix.
    ///
    /// # Errors
    /// Fails if the TLS options or the credentials are unusable.
    pub fn new(connection: &Connection, options: EurekaOptions) -> Result<Self, String> {
        let authorization = match &connection.credentials {
            Credentials::Anonymous => None,
            Credentials::Password { user, password } => {
                let text = STANDARD.encode(format!("{user}:{}", password.expose_secret()));
                let mut value = HeaderValue::try_from(format!("Basic {text}"))
                    .map_err(|_| "the user or the password is unusable".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
            Credentials::Token(_) => return Err("Eureka needs a user and a password, not a token".to_owned()),
        };
        let addresses = connection.addresses.iter().map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            http: HttpClient::new(connection)?,
            addresses: addresses.collect(),
            authorization,
            options,
            writer: AtomicUsize::new(0),
        })
    }

    async fn call<'a>(
        &self,
        address: &'a str,
        (method, path): (&Method, &str),
        body: &Bytes,
        doing: &str,
    ) -> Result<Answer<'a>, RegistryError> {
        let json = HeaderValue::from_static("application/json");
        let request = Request::builder()
            .method(method)
            .uri(format!("{address}/{path}"))
            .header(ACCEPT, &json)
            .header(ACCEPT_ENCODING, "gzip");
        let request = match body.is_empty() {
            true => request,
            false => request.header(CONTENT_TYPE, json),
        };
        let mut request = request
            .body(Full::new(body.clone()))
            .map_err(|error| failed(doing, address, error.to_string()))?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok(Answer { response: self.http.send(request, doing).await?, address })
    }

    /// Reads from one address. Returns `None` for 404.
    async fn get(
        &self,
        address: usize,
        path: &str,
        doing: &str,
    ) -> Result<Option<Answer<'_>>, RegistryError> {
        let address = at_address(&self.addresses, address, doing)?;
        let answer = self.call(address, (&Method::GET, path), &Bytes::new(), doing).await?;
        match answer.response.status {
            StatusCode::OK => Ok(Some(answer)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.response.failure(doing, address)),
        }
    }

    /// Writes to an address that is reachable: it tells its peers.
    async fn send(
        &self,
        (method, path): (Method, &str),
        body: Bytes,
        doing: &str,
    ) -> Result<Answer<'_>, RegistryError> {
        let mut last = None;
        let start = self.writer.load(Ordering::Relaxed);
        for offset in 0..self.addresses.len() {
            let at = (start + offset) % self.addresses.len();
            match self.call(&self.addresses[at], (&method, path), &body, doing).await {
                // Nothing was sent.
                Err(error) if error.kind == RegistryErrorKind::Unavailable => last = Some(error),
                result => {
                    // The next call begins with another address after one that takes the whole time of a call, or cannot serve.
                    let has_served = result.as_ref().is_ok_and(|answer| can_serve(answer.response.status));
                    self.writer.store(at + usize::from(!has_served), Ordering::Relaxed);
                    return result;
                }
            }
        }
        Err(last.unwrap_or_else(|| failed(doing, "no address", "there is no address".to_owned())))
    }

    async fn write_one(&self, change: &Change, may_change: MayChange<'_>) -> Result<(), RegistryError> {
        may_change(change)?;
        let (service, instance) = change.target();
        let doing = change.to_string();
        let path = instance_path(service, instance);
        let refused = |kind, reason: &str| RegistryError {
            kind,
            ..failed(&doing, &self.addresses.join(", "), reason.to_owned())
        };
        if service.name.is_empty() || instance.id.is_empty() {
            let reason = "the name of the application or the id of the instance is empty";
            return Err(refused(RegistryErrorKind::Rejected, reason));
        }
        let (call, body, may_be_missing) = match change {
            Change::Register(..) => {
                let body = serde_json::to_vec(&self.registration(service, instance))
                    .map_err(|error| refused(RegistryErrorKind::Rejected, &error.to_string()))?;
                ((Method::POST, format!("apps/{}", escaped(&service.name))), body, false)
            }
            Change::SetInService(..) if instance.in_service && instance.owner().is_none() => {
                // The heartbeats of an application are refused then, so that it registers its status.
                let was_not_ready =
                    self.stored(&path, &doing).await?.is_some_and(|stored| stored.is_not_ready());
                let status = if was_not_ready { UNKNOWN } else { UP };
                ((Method::DELETE, format!("{path}/status?value={status}")), Vec::new(), false)
            }
            Change::SetInService(..) => {
                // Podward's own instances have no application that registers a status. If others have removed the
                // override, Eureka ignores the removal of one, so they get another one.
                let status = if instance.in_service { UP } else { OUT_OF_SERVICE };
                ((Method::PUT, format!("{path}/status?value={status}")), Vec::new(), false)
            }
            Change::Deregister(..) => ((Method::DELETE, path.clone()), Vec::new(), true),
        };
        if !matches!(change, Change::SetInService(..)) {
            let present = self.stored(&path, &doing).await?.and_then(instance_of);
            if present.is_some_and(|present| present.owner() != instance.owner()) {
                let reason = "somebody else has registered an instance with its id";
                return Err(refused(RegistryErrorKind::Conflict, reason));
            }
        }
        // A read may have taken long.
        may_change(change)?;
        let Answer { response, address } = self.send((call.0, &call.1), Bytes::from(body), &doing).await?;
        match response.status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND if may_be_missing => Ok(()),
            StatusCode::NOT_FOUND => {
                Err(refused(RegistryErrorKind::Conflict, "Eureka does not know the instance"))
            }
            // Eureka may have made the change, and failed to tell its peers.
            status if status.is_server_error() => {
                Err(RegistryError { kind: RegistryErrorKind::Unknown, ..response.failure(&doing, address) })
            }
            _ => Err(response.failure(&doing, address)),
        }
    }

    /// Returns what the first address has stored that is reachable.
    async fn stored(&self, path: &str, doing: &str) -> Result<Option<StoredInstance>, RegistryError> {
        let Answer { response, address } = self.send((Method::GET, path), Bytes::new(), doing).await?;
        match response.status {
            StatusCode::OK => Ok(Some(response.one::<OneInstance>(doing, address)?.instance)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(response.failure(doing, address)),
        }
    }

    fn registration<'a>(&self, service: &'a ServiceKey, instance: &'a Instance) -> Registration<'a> {
        let lease = Lease {
            renewal_interval_in_secs: self.options.renewal.as_secs(),
            duration_in_secs: self.options.lease.as_secs(),
        };
        let instance = RegisteredInstance {
            instance_id: &instance.id,
            host_name: &instance.host,
            app: &service.name,
            ip_addr: &instance.host,
            vip_address: &service.name,
            secure_vip_address: &service.name,
            status: if instance.in_service { UP } else { OUT_OF_SERVICE },
            port: RegisteredPort { number: instance.port, enabled: "true" },
            data_center_info: DataCenter {
                class: "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo",
                name: "MyOwn",
            },
            lease_info: lease,
            metadata: &instance.metadata,
        };
        Registration { instance }
    }

    async fn renew_one(&self, service: &ServiceKey, instance: &Instance) -> Result<bool, RegistryError> {
        let doing = format!("renew {}:{} of service {}", instance.host, instance.port, service.name);
        let path = instance_path(service, instance);
        let Answer { response, address } = self.send((Method::PUT, &path), Bytes::new(), &doing).await?;
        match response.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(response.failure(&doing, address)),
        }
    }
}

/// Returns false for the status of an address that cannot serve at the moment.
fn can_serve(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

fn instance_path(service: &ServiceKey, instance: &Instance) -> String {
    format!("apps/{}/{}", escaped(&service.name), escaped(&instance.id))
}

fn failed(doing: &str, address: &str, reason: String) -> RegistryError {
    RegistryError {
        doing: doing.to_owned(),
        address: address.to_owned(),
        reason,
        kind: RegistryErrorKind::Rejected,
    }
}

/// Returns an instance. `None` if it has no port that is enabled, so that nobody can call it.
fn instance_of(stored: StoredInstance) -> Option<Instance> {
    let (in_service, is_held_out) = (stored.status == UP, stored.is_held_out());
    let port = stored.port.as_ref().and_then(StoredPort::get);
    let port = port.or_else(|| stored.secure_port.as_ref().and_then(StoredPort::get))?;
    let mut metadata = stored.metadata.0;
    // The class of an empty map of Java.
    metadata.remove("@class");
    Some(Instance {
        // Old clients have no id, and are known by their host name.
        id: stored.instance_id.unwrap_or_else(|| stored.host_name.clone()),
        host: if stored.ip_addr.is_empty() { stored.host_name } else { stored.ip_addr },
        port,
        cluster: String::new(),
        weight: 1.0,
        metadata,
        in_service,
        // The application may report another status at any time.
        may_return: !in_service && !is_held_out,
        version: None,
    })
}

#[async_trait]
impl Registry for Eureka {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: true,
            steer: true,
            by_address: false,
            weights: false,
            renewal: Some(self.options.renewal),
            batch: BATCH,
            list_lag: self.options.response_cache,
            cache: CACHE,
        }
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    fn canonical(&self, service: ServiceKey) -> ServiceKey {
        ServiceKey { name: service.name.to_uppercase(), ..service }
    }

    async fn services(&self, address: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let doing = "list the applications";
        let answer = self.get(address, "apps", doing).await?;
        let Answer { response, address } = answer.ok_or_else(|| {
            let reason =
                "HTTP status 404: is the path of the address that of Eureka (/eureka or /eureka/v2)?";
            failed(doing, &self.addresses[address], reason.to_owned())
        })?;
        let all: AllApplications = response.json(doing, address)?;
        let names = all.applications.application.0.into_iter().map(|application| application.name);
        Ok(names.map(|name| ServiceKey { name, ..ServiceKey::default() }).collect())
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let doing = format!("read the instances of service {}", service.name);
        let path = format!("apps/{}", escaped(&service.name));
        let Some(Answer { response, address }) = self.get(address, &path, &doing).await? else {
            return Ok(Vec::new());
        };
        let found: OneApplication = response.json(&doing, address)?;
        Ok(found.application.instance.0.into_iter().filter_map(instance_of).collect())
    }

    async fn instance(
        &self,
        address: usize,
        service: &ServiceKey,
        wanted: &Instance,
    ) -> Result<Option<Instance>, RegistryError> {
        let doing = format!("read {}:{} of service {}", wanted.host, wanted.port, service.name);
        let answer = self.get(address, &instance_path(service, wanted), &doing).await?;
        let Some(Answer { response, address }) = answer else { return Ok(None) };
        Ok(instance_of(response.one::<OneInstance>(&doing, address)?.instance))
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        let calls: Vec<_> = changes.iter().map(|change| self.write_one(change, may_change)).collect();
        stream::iter(calls).buffered(CONCURRENCY).collect().await
    }

    async fn renew_while(
        &self,
        instances: &[(ServiceKey, Instance)],
        _: MayChange<'_>,
    ) -> Vec<Result<bool, RegistryError>> {
        let calls: Vec<_> =
            instances.iter().map(|(service, instance)| self.renew_one(service, instance)).collect();
        stream::iter(calls).buffered(CONCURRENCY).collect().await
    }
}
