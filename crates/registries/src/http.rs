//! A registry with an HTTP interface of its own, whose calls are described by templates.
//!
//! Without a call that reads instances, nothing is read back, and it cannot be seen whose an instance is. With one, the
//! instances of a service are read before an instance is registered or deregistered, and one with another owner is left
//! alone.

pub(crate) mod body;
mod call;
mod idempotency;
mod options;
mod reading;
pub(crate) mod template;
mod write;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use secrecy::ExposeSecret;

use crate::connection::{Connection, Credentials};
use crate::error::{RegistryError, RegistryErrorKind, at_address};
use crate::http_client::{HttpClient, HttpResponse};
use crate::instance::{Instance, ServiceKey};
use crate::registry::{Capabilities, Change, MayChange, Registry};

use self::call::Call;
use self::idempotency::IdempotencyKeys;
use self::reading::{Listing, Reading};
use self::template::{Scope, Subject};

pub use options::{HttpCall, HttpListing, HttpOptions, HttpReading, HttpStatuses};

const BATCH: usize = 64;
/// What clients of such a registry do is not known.
const CACHE: Duration = Duration::from_secs(5);

/// A client of a registry with an HTTP interface of its own.
pub struct HttpRegistry {
    http: HttpClient,
    addresses: Vec<String>,
    authorization: Option<HeaderValue>,
    register: Option<Call>,
    deregister: Option<Call>,
    put_into_service: Option<Call>,
    take_out_of_service: Option<Call>,
    reading: Option<Reading>,
    listing: Option<Listing>,
    idempotency_header: Option<HeaderName>,
    keys: IdempotencyKeys,
}

impl fmt::Debug for HttpRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRegistry").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// A response, and the address that it came from.
struct Answer<'a> {
    response: HttpResponse,
    address: &'a str,
}

impl HttpRegistry {
    /// Returns a client. The addresses are URLs, which may have a path. A password is sent as `Basic` authorization, a token
    /// as `Bearer`.
    ///
    /// # Errors
    /// Fails with a message for people that says which option is unusable and why.
    pub fn new(connection: &Connection, options: &HttpOptions) -> Result<Self, String> {
        let call = |name: &str, call: &Option<HttpCall>| {
            let parsed = call.as_ref().map(|call| Call::new(call, Scope::Instance)).transpose();
            parsed.map_err(|error| format!("{name}: {error}"))
        };
        let reading = options.read.as_ref().map(Reading::new).transpose();
        let reading = reading.map_err(|error| format!("read: {error}"))?;
        let listing = options.list.as_ref().map(Listing::new).transpose();
        let registry = Self {
            http: HttpClient::new(connection)?,
            addresses: connection.addresses.iter().map(|url| address(url)).collect::<Result<_, _>>()?,
            authorization: authorization(&connection.credentials)?,
            register: call("register", &options.register)?,
            deregister: call("deregister", &options.deregister)?,
            put_into_service: call("putIntoService", &options.put_into_service)?,
            take_out_of_service: call("takeOutOfService", &options.take_out_of_service)?,
            reading,
            listing: listing.map_err(|error| format!("list: {error}"))?,
            idempotency_header: match options.idempotency_header.as_str() {
                "" => None,
                name => Some(name.parse().map_err(|_| format!("{name:?} is not a name of a header"))?),
            },
            keys: IdempotencyKeys::default(),
        };
        registry.check()?;
        Ok(registry)
    }

    /// Checks what only the options together show.
    fn check(&self) -> Result<(), String> {
        let pairs = [
            ("register", &self.register, "deregister", &self.deregister),
            ("putIntoService", &self.put_into_service, "takeOutOfService", &self.take_out_of_service),
        ];
        for (one, has_one, other, has_other) in pairs {
            if has_one.is_some() != has_other.is_some() {
                return Err(format!("{one} and {other} need each other: set both or none"));
            }
        }
        if self.register.is_none() && self.put_into_service.is_none() {
            return Err("no call changes anything: set register and deregister, or putIntoService and takeOutOfService"
                .to_owned());
        }
        let Some(reading) = &self.reading else { return Ok(()) };
        if self.register.is_some() && !reading.has_metadata() {
            return Err(
                "read: the field metadata is needed: it says who has registered an instance".to_owned()
            );
        }
        if self.put_into_service.is_some() && !reading.has_in_service() {
            return Err("read: the field inService is needed: it shows what putIntoService and takeOutOfService change"
                .to_owned());
        }
        Ok(())
    }

    /// Sends a request to one address.
    async fn send<'a>(
        &self,
        address: &'a str,
        mut request: Request<Full<Bytes>>,
        doing: &str,
    ) -> Result<Answer<'a>, RegistryError> {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let response = self.http.send(request, doing).await?;
        Ok(Answer { response, address })
    }

    /// Reads from one address. `None` if the status is one of `missing`.
    async fn get(
        &self,
        address: &str,
        path: &str,
        missing: &[u16],
        doing: &str,
    ) -> Result<Option<HttpResponse>, RegistryError> {
        let request = Request::get(format!("{address}{path}")).body(Full::default());
        let request = request.map_err(|error| rejected(doing, address, error.to_string()))?;
        let Answer { response, .. } = self.send(address, request, doing).await?;
        if missing.contains(&response.status.as_u16()) {
            return Ok(None);
        }
        if response.status != StatusCode::OK {
            return Err(response.failure(doing, address));
        }
        Ok(Some(response))
    }

    async fn read(&self, address: &str, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        let doing = format!("read the instances of service {}", service.name);
        let reading = self
            .reading
            .as_ref()
            .ok_or_else(|| rejected(&doing, address, "no call reads instances".to_owned()))?;
        let subject = Subject { service: Some(service), instance: None };
        let path = call::fill_path(&reading.path, subject);
        let path = path.map_err(|reason| rejected(&doing, address, reason))?;
        match self.get(address, &path, &reading.missing, &doing).await? {
            Some(response) => {
                let found = reading.instances(&response.value(&doing, address)?);
                found.map_err(|reason| invalid(&doing, address, reason))
            }
            None => Ok(Vec::new()),
        }
    }
}

/// Checks an address, and returns it without a slash at its end.
fn address(url: &str) -> Result<String, String> {
    const FORM: &str =
        "is not a URL of the form http://<host>:<port> or https://<host>:<port>, maybe with a path";
    let uri: Uri = url.parse().map_err(|_| format!("an address {FORM}"))?;
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if authority.contains('@') {
        return Err("an address contains credentials".to_owned());
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.is_empty() || uri.query().is_some() {
        return Err(format!("address {url:?} {FORM}"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, String> {
    let text = match credentials {
        Credentials::Anonymous => return Ok(None),
        Credentials::Password { .. } => format!("Basic {}", credentials.basic()),
        Credentials::Token(token) => format!("Bearer {}", token.expose_secret()),
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "the token has characters that headers cannot have".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn rejected(doing: &str, address: &str, reason: String) -> RegistryError {
    RegistryError {
        doing: doing.to_owned(),
        address: address.to_owned(),
        reason,
        kind: RegistryErrorKind::Rejected,
    }
}

fn invalid(doing: &str, address: &str, reason: String) -> RegistryError {
    RegistryError { kind: RegistryErrorKind::Invalid, ..rejected(doing, address, reason) }
}

#[async_trait]
impl Registry for HttpRegistry {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            own: self.register.is_some(),
            steer: self.put_into_service.is_some(),
            by_address: self.reading.as_ref().is_some_and(|reading| !reading.has_id()),
            weights: self.reading.as_ref().is_some_and(Reading::has_weight),
            renewal: None,
            batch: BATCH,
            list_lag: Duration::ZERO,
            cache: CACHE,
        }
    }

    fn can_read(&self) -> bool {
        self.reading.is_some()
    }

    fn can_list(&self) -> bool {
        self.listing.is_some()
    }

    fn can_take_out_of_service(&self) -> bool {
        self.take_out_of_service.is_some()
    }

    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn services(&self, address: usize, _: &str) -> Result<Vec<ServiceKey>, RegistryError> {
        let doing = "list the services";
        let at = at_address(&self.addresses, address, doing)?;
        let listing =
            self.listing.as_ref().ok_or_else(|| rejected(doing, at, "no call lists services".to_owned()))?;
        let path = call::fill_path(&listing.path, Subject { service: None, instance: None });
        let path = path.map_err(|reason| rejected(doing, at, reason))?;
        let Some(response) = self.get(at, &path, &[], doing).await? else { return Ok(Vec::new()) };
        listing.services(&response.value(doing, at)?).map_err(|reason| invalid(doing, at, reason))
    }

    async fn instances(&self, address: usize, service: &ServiceKey) -> Result<Vec<Instance>, RegistryError> {
        self.read(at_address(&self.addresses, address, "read instances")?, service).await
    }

    async fn write_while(
        &self,
        changes: &[Change],
        may_change: MayChange<'_>,
    ) -> Vec<Result<(), RegistryError>> {
        self.write_all(changes, may_change).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
