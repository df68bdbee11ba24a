//! Single reads and changes at one server.

use hyper::StatusCode;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::{Instance, ServiceKey};
use crate::limits::{BytesRead, Exceeded, LargeRead};

use super::api::{Api, Parameters};
use super::found::{Found, key_of};
use super::server::{Call, Server};
use super::wire::{self, Problem, StoredInstance};

/// The lists of one read of a service.
#[derive(Debug, Default)]
pub(super) struct Lists {
    read: BytesRead,
    /// What the read has once one of its lists is large, because it keeps parts of them.
    place: Option<LargeRead>,
}

impl Lists {
    /// Reads a list. Returns `None` if there is no such service, cluster or path.
    pub(super) async fn list(
        &mut self,
        (server, api): (&Server, Api),
        path: &'static str,
        parameters: Parameters,
        doing: &str,
    ) -> Result<Option<Vec<StoredInstance>>, RegistryError> {
        let call = Call::get(path, parameters);
        if self.read.are_many() && self.place.is_none() {
            let place = server.begin_large().await;
            let busy = |reason| server.error(RegistryErrorKind::Unavailable, doing, reason);
            self.place = Some(place.map_err(busy)?);
        }
        let mut response = server.call_with(&call, doing, self.place.take()).await?;
        self.place = response.place.take();
        let exceeded = |exceeded: Exceeded| exceeded.error(doing, &server.url);
        self.read.add(response.body.len()).map_err(exceeded)?;
        // Nacos 1 answers 500 if there is no such service.
        let is_missing = response.status == StatusCode::NOT_FOUND
            || response.status == StatusCode::GONE
            || (api == Api::V1
                && response.status == StatusCode::INTERNAL_SERVER_ERROR
                && String::from_utf8_lossy(&response.body).contains("is not found"));
        if is_missing {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(response.failure(doing, &server.url));
        }
        let found = wire::instances(&response.body);
        found.map(Some).map_err(|problem| problem_error(server, RegistryErrorKind::Invalid, doing, problem))
    }
}

/// Reads an instance that the lists lack. Clients do not see it.
pub(super) async fn read_unlisted(
    server: &Server,
    service: &ServiceKey,
    wanted: &Instance,
    doing: &str,
) -> Result<Option<Found>, RegistryError> {
    let api = server.api(doing).await?;
    if api != Api::V1 {
        return Ok(None);
    }
    let (ip, port, cluster) = key_of(wanted);
    let mut parameters = api.name(api.instance(), service);
    parameters.extend([
        ("ip", ip.to_owned()),
        ("port", port.to_string()),
        ("clusterName", cluster.to_owned()),
    ]);
    let response = server.call(&Call::get(api.instance(), parameters), doing).await?;
    match response.status {
        status if status.is_success() => {
            let stored: StoredInstance = response.one(doing, &server.url)?;
            // Lists have an instance that is only not healthy, and the answer does not say whether this one is enabled.
            Ok(Some(Found { stored, is_visible: false, is_disabled: true }))
        }
        // Version 1 has no status of its own for an instance that does not exist, and both lists were read.
        StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR => Ok(None),
        _ => Err(response.failure(doing, &server.url)),
    }
}

/// Makes a change. `may_be_missing`: servers that lack the path need no change.
pub(super) async fn send(
    server: &Server,
    call: Call,
    may_be_missing: bool,
    doing: &str,
) -> Result<(), RegistryError> {
    let response = server.call(&call, doing).await?;
    match response.status {
        StatusCode::NOT_FOUND if may_be_missing => Ok(()),
        status if status.is_success() => wire::outcome(&response.body)
            .map_err(|problem| problem_error(server, RegistryErrorKind::Rejected, doing, problem)),
        StatusCode::GONE => {
            server.forget_api();
            Err(response.failure(doing, &server.url))
        }
        // Nacos may have made the change.
        status if status.is_server_error() => {
            let error = response.failure(doing, &server.url);
            Err(RegistryError { kind: RegistryErrorKind::Unknown, ..error })
        }
        _ => Err(response.failure(doing, &server.url)),
    }
}

fn problem_error(server: &Server, kind: RegistryErrorKind, doing: &str, problem: Problem) -> RegistryError {
    let error = server.error(kind, doing, problem.reason);
    if let Some(detail) = problem.detail {
        server.log(&error, &detail);
    }
    error
}
