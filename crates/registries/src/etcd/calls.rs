//! The calls to one server of etcd, with the token of its user.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Response, Status};

use crate::error::{RegistryError, RegistryErrorKind};

use super::proto::auth_client::AuthClient;
use super::proto::{AuthenticateRequest, AuthenticateResponse};

/// The name of the metadata with the token.
const TOKEN: &str = "token";
/// In bytes. A page of instances has at most some hundred kilobytes, but values are up to others.
pub(super) const MAX_MESSAGE: usize = 64 << 20;

/// The connection to one server.
#[derive(Debug)]
pub(super) struct EtcdServer {
    pub(super) address: String,
    pub(super) channel: Channel,
    pub(super) token: Mutex<Option<MetadataValue<Ascii>>>,
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
            Err(Status::deadline_exceeded(format!("no response within {} s", timeout.as_secs_f64())))
        });
        result.map(Response::into_inner).map_err(|status| self.error(doing, kind, &status))
    }

    async fn log_in(&self, user: &EtcdUser) -> Result<MetadataValue<Ascii>, Status> {
        let request = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.expose_secret().to_owned(),
        };
        let answer = AuthClient::new(self.channel.clone()).authenticate(request).await?;
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
        let mut reason = format!("{:?}: {}{advice}", status.code(), status.message());
        if let Some(cause) = connect_error(status).and_then(|error| error.source()) {
            reason = format!("could not connect: {cause}");
        }
        RegistryError { doing: doing.to_owned(), address: self.address.clone(), reason, kind: error_kind }
    }
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
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
            match kind {
                CallKind::Read => RegistryErrorKind::Unavailable,
                CallKind::Write => RegistryErrorKind::Unknown,
            }
        }
        _ => RegistryErrorKind::Rejected,
    }
}
