//! One address of ZooKeeper: keeps a session while it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls_pki_types::ServerName;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::connection::Credentials;
use crate::detail::{DetailLog, chain, connect_problem};
use crate::dialer::Dialer;
use crate::error::{RegistryError, RegistryErrorKind};
use crate::limits::LargeReads;

use super::codes;
use super::packets::{self, Request};
use super::session::{Answer, Failure, IDLE, Session, Transport};

/// A user and the password.
#[derive(Clone, Debug)]
pub(super) struct ZooKeeperUser {
    pub(super) name: String,
    pub(super) password: SecretString,
}

/// One address.
pub(super) struct Server {
    pub(super) address: String,
    host: String,
    port: u16,
    dialer: Arc<dyn Dialer>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    user: Option<ZooKeeperUser>,
    details: DetailLog,
    pub(super) large: LargeReads,
    state: Mutex<State>,
    /// The number of attempts to connect so far.
    attempts: AtomicU64,
}

/// An error's kind and reason.
type Cause = (RegistryErrorKind, String);

#[derive(Debug, Default)]
struct State {
    session: Option<Session>,
    /// Why the last attempt to connect failed.
    failure: Option<Cause>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// # Errors
    /// Fails if the address is not of the form `host:port`.
    pub(super) fn new(
        address: &str,
        dialer: Arc<dyn Dialer>,
        tls: Option<TlsConnector>,
        user: Option<ZooKeeperUser>,
        large: LargeReads,
    ) -> Result<Self, String> {
        let credentials = user.as_ref().map_or(Credentials::Anonymous, |user| Credentials::Password {
            user: user.name.clone(),
            password: user.password.clone(),
        });
        let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = parts
            .filter(|(host, _)| !host.is_empty() && !host.contains('/'))
            .ok_or_else(|| format!("{address:?} is not of the form <host>:<port>"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = tls.map(|connector| {
            let name = ServerName::try_from(host.clone());
            name.map(|name| (connector, name)).map_err(|_| format!("{host:?} is not the name of a host"))
        });
        Ok(Self {
            address: address.to_owned(),
            host,
            port,
            dialer,
            tls: tls.transpose()?,
            details: DetailLog::new(&credentials),
            large,
            user,
            state: Mutex::default(),
            attempts: AtomicU64::new(0),
        })
    }

    /// Returns whether the connection has a user, who can own nodes.
    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Sends a request until `deadline`, and returns the answer, whatever its code. `doing` is for errors. Of an answer of more
    /// than `max` bytes the body is left out.
    pub(super) async fn call(
        &self,
        request: Request,
        max: usize,
        deadline: Instant,
        doing: &str,
    ) -> Result<Answer, RegistryError> {
        let is_write = request.is_write();
        let lost = if is_write { RegistryErrorKind::Unknown } else { RegistryErrorKind::Unavailable };
        // The session that the request was sent to.
        let used = parking_lot::Mutex::new(None);
        let exchange = async {
            let mut result = Err(Failure::NotSent(String::new()));
            // The session may end just before the request is sent, but a new one does not.
            for _ in 0..2 {
                let session = self.session().await?;
                *used.lock() = Some(session.clone());
                result = session.call(request.clone(), max).await;
                if !matches!(result, Err(Failure::NotSent(_))) {
                    break;
                }
                *used.lock() = None;
            }
            match result {
                Ok(answer) => Ok(answer),
                Err(Failure::NotSent(reason)) => Err((RegistryErrorKind::Unavailable, reason)),
                Err(Failure::Lost(reason)) => Err((lost, reason)),
            }
        };
        let result = tokio::time::timeout_at(deadline, exchange).await;
        let used = used.into_inner();
        let is_useless = match &result {
            Ok(Ok(answer)) => codes::ends_session(answer.code),
            Ok(Err(_)) => false,
            Err(_) => true,
        };
        if let (Some(session), true) = (&used, is_useless) {
            self.forget(session);
        }
        let result = result.unwrap_or_else(|_| match used {
            Some(_) => Err((lost, "no answer in time".to_owned())),
            None => Err((RegistryErrorKind::Unavailable, "no connection in time".to_owned())),
        });
        result.map_err(|cause| self.error(doing, cause))
    }

    /// Returns the session, which is a new one if there is none.
    pub(super) async fn session(&self) -> Result<Session, Cause> {
        let before = self.attempts.load(Ordering::Relaxed);
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| !session.has_ended()) {
            return Ok(session.clone());
        }
        // Somebody else has tried meanwhile.
        if let Some(failure) = &state.failure
            && self.attempts.load(Ordering::Relaxed) != before
        {
            return Err(failure.clone());
        }
        let result = self.connect().await;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        state.session = result.as_ref().ok().cloned();
        state.failure = result.as_ref().err().cloned();
        result
    }

    async fn connect(&self) -> Result<Session, Cause> {
        let unavailable = |error: std::io::Error| {
            let (reason, detail) = (connect_problem(&error), chain(&error));
            self.details
                .write(&self.error("connect", (RegistryErrorKind::Unavailable, reason.clone())), &detail);
            (RegistryErrorKind::Unavailable, reason)
        };
        let stream = self.dialer.dial(&self.host, self.port).await.map_err(unavailable)?;
        let transport: Box<dyn Transport> = match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => {
                Box::new(connector.connect(name.clone(), stream).await.map_err(unavailable)?)
            }
        };
        let credentials = self.user.as_ref();
        let credentials =
            credentials.map(|user| packets::authenticate(&user.name, user.password.expose_secret()));
        let session = Session::open(transport, credentials, IDLE).await.map_err(unavailable)?;
        session.map_err(|code| codes::describe(code, false))
    }

    /// Makes the next call connect again, unless somebody else does already.
    fn forget(&self, session: &Session) {
        if let Ok(mut state) = self.state.try_lock()
            && state.session.as_ref().is_some_and(|present| present.is_same(session))
        {
            state.session = None;
        }
    }

    pub(super) fn error(&self, doing: &str, (kind, reason): Cause) -> RegistryError {
        RegistryError { doing: doing.to_owned(), address: self.address.clone(), reason, kind }
    }
}
