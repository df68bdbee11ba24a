//! The calls to one server of etcd, with the token of its user.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Response, Status};

use crate::detail::{DetailLog, chain, connect_problem};
use crate::error::{RegistryError, RegistryErrorKind};

use super::proto::auth_client::AuthClient;
use super::proto::{AuthenticateRequest, AuthenticateResponse};

/// The name of the metadata with the token.
const TOKEN: &str = "token";
/// In bytes: the longest answer that is not one of many keys. A token is short.
pub(super) const MAX_MESSAGE: usize = 512 << 10;
const MAX_LOGIN: usize = 16 << 10;

const NO_RESPONSE: &str = "no response";
/// Texts of etcd (`rpctypes/error.go`) that are shown. Others may be of a server that is something else.
const KNOWN: [&str; 20] = [
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: authentication is not enabled",
    "etcdserver: duplicate key given in txn request",
    "etcdserver: invalid auth token",
    "etcdserver: leader changed",
    "etcdserver: mvcc: database space exceeded",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: mvcc: required revision is a future revision",
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: permission denied",
    "etcdserver: request is too large",
    "etcdserver: request timed out",
    "etcdserver: request timed out, possibly due to connection lost",
    "etcdserver: request timed out, possibly due to previous leader failure",
    "etcdserver: requested lease not found",
    "etcdserver: server stopped",
    "etcdserver: too many operations in txn request",
    "etcdserver: too many requests",
    "etcdserver: user name is empty",
];

/// The connection to one server.
#[derive(Debug)]
pub(super) struct EtcdServer {
    pub(super) address: String,
    pub(super) channel: Channel,
    pub(super) token: Mutex<Option<MetadataValue<Ascii>>>,
    pub(super) details: DetailLog,
}

/// A user and the password.
#[derive(Clone, Debug)]
pub(super) struct EtcdUser {
    pub(super) name: String,
    pub(super) password: SecretString,
}

/// Whether a failed call may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Read,
    Write,
}

impl EtcdServer {
    /// Makes a call with the token of `user`. When the token is refused, which ends after some minutes, it makes the call
    /// once more with a new one.
    pub(super) async fn call<T, F>(
        &self,
        user: Option<&EtcdUser>,
        timeout: Duration,
        (doing, kind): (&str, CallKind),
        make: impl Fn(Request<()>) -> F,
    ) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = async {
            let Some(user) = user else { return make(Request::new(())).await };
            let present = self.token.lock().clone();
            let had_token = present.is_some();
            let token = match present {
                Some(token) => token,
                None => self.log_in(user).await?,
            };
            match make(with_token(token)).await {
                Err(status) if had_token && status.code() == Code::Unauthenticated => {
                    let token = self.log_in(user).await?;
                    make(with_token(token)).await
                }
                result => result,
            }
        };
        let result = tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("{NO_RESPONSE} within {} s", timeout.as_secs_f64())))
        });
        result.map(Response::into_inner).map_err(|status| self.error(doing, kind, &status))
    }

    async fn log_in(&self, user: &EtcdUser) -> Result<MetadataValue<Ascii>, Status> {
        let request = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.expose_secret().to_owned(),
        };
        let answer = AuthClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_LOGIN)
            .authenticate(request)
            .await?;
        let AuthenticateResponse { token } = answer.into_inner();
        let mut token: MetadataValue<Ascii> =
            token.parse().map_err(|_| Status::internal("the token contains invalid characters"))?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token.clone());
        Ok(token)
    }

    pub(super) fn error(&self, doing: &str, kind: CallKind, status: &Status) -> RegistryError {
        let error_kind = error_kind(kind, status);
        let advice = match error_kind {
            RegistryErrorKind::Denied => "; check the credentials and their permissions",
            _ => "",
        };
        let known = KNOWN.into_iter().find(|known| status.message() == *known);
        let (reason, detail) = match connect_error(status) {
            Some(error) => (connect_problem(error), chain(error)),
            // The text is of this client.
            None if status.code() == Code::DeadlineExceeded && status.message().starts_with(NO_RESPONSE) => {
                (status.message().to_owned(), String::new())
            }
            None => (described(status.code(), known) + advice, status.message().to_owned()),
        };
        let error = RegistryError {
            doing: doing.to_owned(),
            address: self.address.clone(),
            reason,
            kind: error_kind,
        };
        if known.is_none() && !detail.is_empty() {
            self.details.write(&error, &detail);
        }
        error
    }
}

/// Returns what a failed call means, with a text of etcd only if it is a known one.
fn described(code: Code, known: Option<&str>) -> String {
    let meaning = match code {
        _ if known.is_some() => known.unwrap_or_default(),
        Code::Unauthenticated | Code::PermissionDenied => "the server refuses the call",
        Code::ResourceExhausted => "the server is overloaded",
        Code::Unimplemented => "the server is not one of etcd; check the address",
        Code::OutOfRange => "the answer is too large, or the revision does not exist",
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            "the server does not serve at the moment"
        }
        Code::Unknown | Code::Internal => "the server has failed, or is not one of etcd",
        _ => "the server does not accept the call",
    };
    let more = if known.is_some() { "" } else { "; the log of the bridge has the details" };
    format!("{code:?}: {meaning}{more}")
}

fn with_token(token: MetadataValue<Ascii>) -> Request<()> {
    let mut request = Request::new(());
    request.metadata_mut().insert(TOKEN, token);
    request
}

fn connect_error(status: &Status) -> Option<&ConnectError> {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

fn error_kind(kind: CallKind, status: &Status) -> RegistryErrorKind {
    // With authentication, etcd answers a call without a token so.
    let has_no_user = status.message().contains("user name is empty");
    // A wrong password.
    let is_refused = status.message().contains("authentication failed");
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => RegistryErrorKind::Denied,
        Code::InvalidArgument if has_no_user || is_refused => RegistryErrorKind::Denied,
        Code::ResourceExhausted => RegistryErrorKind::Unavailable,
        _ if connect_error(status).is_some() => RegistryErrorKind::Unavailable,
        // An answer that is too large: the change was made.
        Code::OutOfRange if kind == CallKind::Write => RegistryErrorKind::Unknown,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
            match kind {
                CallKind::Read => RegistryErrorKind::Unavailable,
                CallKind::Write => RegistryErrorKind::Unknown,
            }
        }
        _ => RegistryErrorKind::Rejected,
    }
}
