//! Resolves a host, checks its addresses, and connects to one that the policy allows.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::{AddressClass, AddressPolicy};

/// The number of addresses of a host that are tried. Others are ignored.
const MAX_ADDRESSES: usize = 16;

/// Resolves names. A stand-in in tests; [`SystemResolver`] everywhere else.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of a host, which is a DNS name or an IP address without brackets, with this port.
    ///
    /// # Errors
    /// When the name has no addresses, or can't be resolved.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// There is no connection. The text contains addresses and reasons: write it to the log, and not to where the user who
/// wrote the URL reads it, except for [`DialError::NotAllowed`] and [`DialError::ApiServerUnknown`] by their kind.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The addresses of the API server are not known yet, so that no address can be checked. Try again later.
    #[error(
        "the addresses of the API server are not known yet; this process must be able to get the Service \
         default/kubernetes, and to list and watch the EndpointSlice of the same name"
    )]
    ApiServerUnknown,
    /// The name of the API server can't be resolved, so that no address can be checked. Try again later.
    #[error("could not resolve {name}, the name of the API server: {source}")]
    ApiServerName {
        /// The name.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// All addresses of the host are refused.
    #[error("{host} is not connected to: {address} is {class}, and the allow-list does not contain it")]
    NotAllowed {
        /// The host.
        host: String,
        /// Its first address.
        address: IpAddr,
        /// The class of the first address.
        class: AddressClass,
    },
    /// The host can't be resolved.
    #[error("could not resolve {host}: {source}")]
    Name {
        /// The host.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// No address accepted a connection.
    #[error("could not connect to {address}: {source}")]
    Tcp {
        /// The last address that was tried.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

impl DialError {
    /// Returns the error of the dialer among `error` and its sources.
    #[must_use]
    pub fn among<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| (*error).source()).find_map(|error| error.downcast_ref())
    }
}

/// Connects to hosts, as far as an [`AddressPolicy`] allows it. Clones share the policy and the resolver.
#[derive(Clone)]
pub struct GuardedDialer {
    policy: AddressPolicy,
    resolver: Arc<dyn Resolve>,
}

impl fmt::Debug for GuardedDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedDialer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl GuardedDialer {
    /// Returns a dialer with the resolver of the operating system.
    #[must_use]
    pub fn new(policy: AddressPolicy) -> Self {
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// Returns a dialer with another resolver.
    #[must_use]
    pub fn with_resolver(policy: AddressPolicy, resolver: Arc<dyn Resolve>) -> Self {
        Self { policy, resolver }
    }

    /// Connects to an allowed address of `host`, a DNS name or an IP address without brackets, within `limit`. The host
    /// is resolved once; addresses that are refused are skipped.
    ///
    /// # Errors
    /// When the host can't be resolved, no address is allowed, or none accepts a connection in time.
    pub async fn connect(&self, host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
        let deadline = Instant::now() + limit;
        self.know_api_server(deadline).await?;
        let addresses = in_time(deadline, self.resolver.resolve(host, port))
            .await
            .map_err(|source| DialError::Name { host: host.to_owned(), source })?;
        let addresses = self.allowed(host, addresses)?;
        let mut failure = None;
        for (tried, address) in addresses.iter().enumerate() {
            // The time that is left is divided among the addresses that are left.
            let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
            let connected = in_time(until, TcpStream::connect(address)).await;
            match connected.and_then(|stream| self.is_other_host(&stream).map(|is_other| (stream, is_other)))
            {
                Ok((stream, true)) => return Ok(stream),
                Ok((_, false)) => failure = Some(not_allowed(host, address.ip(), AddressClass::ThisHost)),
                Err(source) => failure = Some(DialError::Tcp { address: *address, source }),
            }
        }
        Err(failure.unwrap_or_else(|| DialError::Name {
            host: host.to_owned(),
            source: io::Error::new(io::ErrorKind::NotFound, "it has no address"),
        }))
    }

    /// Resolves the name of the API server, if its URL contains a name.
    async fn know_api_server(&self, deadline: Instant) -> Result<(), DialError> {
        let api_server = self.policy.api_server();
        if !api_server.are_known() {
            return Err(DialError::ApiServerUnknown);
        }
        let Some(name) = api_server.name() else { return Ok(()) };
        // The port does not matter.
        match in_time(deadline, self.resolver.resolve(&name, 443)).await {
            Ok(addresses) => {
                api_server.add_resolved(addresses.into_iter().map(|address| address.ip()));
                Ok(())
            }
            Err(source) => Err(DialError::ApiServerName { name, source }),
        }
    }

    fn allowed(&self, host: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, DialError> {
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            match self.policy.check(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(class) => refused = refused.or(Some((address.ip(), class))),
            }
        }
        match refused {
            Some((address, class)) if allowed.is_empty() => Err(not_allowed(host, address, class)),
            _ => Ok(allowed),
        }
    }

    /// Returns false if the connection leads back to this host, which has addresses other than loopback too, and the
    /// allow-list does not contain the address.
    fn is_other_host(&self, stream: &TcpStream) -> io::Result<bool> {
        let (local, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        Ok(local.to_canonical() != peer.to_canonical() || self.policy.allows(peer))
    }
}

fn not_allowed(host: &str, address: IpAddr, class: AddressClass) -> DialError {
    DialError::NotAllowed { host: host.to_owned(), address, class }
}

async fn in_time<T>(deadline: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    }
}
