//! A response, and what follows from its status.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use crate::detail::{DetailLog, excerpt};
use crate::error::{RegistryError, RegistryErrorKind};
use crate::limits::{self, Exceeded, LargeRead, MAX_INSTANCE, NoValue};

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(super) details: Arc<DetailLog>,
    /// The right to keep a large body. A read of several calls takes it with it.
    pub(crate) place: Option<LargeRead>,
}

impl HttpResponse {
    /// Reads the body as JSON.
    ///
    /// # Errors
    /// [`Invalid`](RegistryErrorKind::Invalid) if it is something else, or exceeds a limit.
    pub(crate) fn json<T: DeserializeOwned>(&self, doing: &str, address: &str) -> Result<T, RegistryError> {
        serde_json::from_slice(&self.body).map_err(|error| self.not_json(doing, address, &error))
    }

    /// Reads the body as JSON of one instance.
    ///
    /// # Errors
    /// [`Invalid`](RegistryErrorKind::Invalid) if it is something else, or exceeds a limit.
    pub(crate) fn one<T: DeserializeOwned>(&self, doing: &str, address: &str) -> Result<T, RegistryError> {
        match self.body.len() > MAX_INSTANCE {
            true => Err(Exceeded::OneInstance.error(doing, address)),
            false => self.json(doing, address),
        }
    }

    /// Reads the body as JSON of any form.
    ///
    /// # Errors
    /// [`Invalid`](RegistryErrorKind::Invalid) if it is something else, or exceeds a limit.
    pub(crate) fn value(&self, doing: &str, address: &str) -> Result<Value, RegistryError> {
        limits::value(&self.body).map_err(|error| match error {
            NoValue::Exceeded(exceeded) => exceeded.error(doing, address),
            NoValue::Json(error) => self.not_json(doing, address, &error),
        })
    }

    fn not_json(&self, doing: &str, address: &str, error: &serde_json::Error) -> RegistryError {
        if let Some(exceeded) = Exceeded::of(&error.to_string()) {
            return exceeded.error(doing, address);
        }
        let what = match error.classify() {
            Category::Data => "JSON of another form",
            Category::Eof => "JSON that ends too early",
            Category::Syntax | Category::Io => "no JSON",
        };
        let place = format!("line {}, column {}", error.line(), error.column());
        let reason = format!(
            "the response is not as expected: it is {what} ({place}); check the address; the log of the bridge has the \
             details"
        );
        let error_text = format!("{error}: {}", self.excerpt());
        self.logged(doing, address, RegistryErrorKind::Invalid, reason, &error_text)
    }

    /// Returns the error of a status that means a failure: [`Denied`](RegistryErrorKind::Denied) for 401 and 403,
    /// [`Unavailable`](RegistryErrorKind::Unavailable) for 429 and 5xx, [`Rejected`](RegistryErrorKind::Rejected) for others.
    pub(crate) fn failure(&self, doing: &str, address: &str) -> RegistryError {
        let status = self.status.as_u16();
        let kind = match status {
            401 | 403 => RegistryErrorKind::Denied,
            429 | 500..=599 => RegistryErrorKind::Unavailable,
            _ => RegistryErrorKind::Rejected,
        };
        let meaning = match status {
            401 | 403 => "the registry refuses the call; check the credentials and their permissions",
            300..=399 => "redirects are not followed; check the address",
            404 | 410 => "there is nothing at this path; check the address",
            429 => "there are too many calls",
            500..=599 => "the registry has failed, or does not serve at the moment",
            _ => "the registry does not accept the call",
        };
        let reason = format!("HTTP status {status}: {meaning}; the log of the bridge has the details");
        self.logged(doing, address, kind, reason, &self.excerpt())
    }

    /// Returns an error, and writes the details into the log.
    pub(crate) fn logged(
        &self,
        doing: &str,
        address: &str,
        kind: RegistryErrorKind,
        reason: String,
        detail: &str,
    ) -> RegistryError {
        let error = RegistryError { doing: doing.to_owned(), address: address.to_owned(), reason, kind };
        self.details.write(&error, detail);
        error
    }

    /// Returns the beginning of the body, for the log.
    fn excerpt(&self) -> String {
        excerpt(&self.body)
    }
}
