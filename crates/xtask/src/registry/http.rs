//! HTTP requests to a registry, with authentication.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    body::Bytes,
    header::{self, HeaderName, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Mutex;

use super::{Credentials, attempts::AttemptFailure, name::is_this_machine};

/// The deadline of a request: longer than the upload of a layer over a slow connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum size of a response in bytes. Manifests and error messages are small.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    pub(super) host: String,
    pub(super) credentials: Option<Credentials>,
    /// The header `authorization`, once the registry asked for it.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A request to a registry. It can be sent more than once.
#[derive(Clone)]
pub(super) struct RegistryRequest {
    pub(super) method: Method,
    pub(super) url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl RegistryRequest {
    pub(super) fn new(method: Method, url: String) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(super) fn content(self, media_type: &str, content: &[u8]) -> Self {
        let mut request = self.header(header::CONTENT_TYPE, media_type);
        request.body = Bytes::copy_from_slice(content);
        request
    }

    pub(super) fn accept(self, media_type: &str) -> Self {
        self.header(header::ACCEPT, media_type)
    }

    fn header(mut self, name: HeaderName, value: &str) -> Self {
        // Media types are constants of this program.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub(super) fn authorized(mut self, value: HeaderValue) -> Self {
        self.headers.insert(header::AUTHORIZATION, value);
        self
    }
}

/// A response of a registry.
#[derive(Debug)]
pub(super) struct RegistryResponse {
    /// The method and URL of the request.
    request: String,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl RegistryResponse {
    pub(super) fn text(&self, name: &HeaderName) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// Returns this response if it has the status `status`.
    ///
    /// # Errors
    /// When it has another status. The failure is temporary for server errors and rate limits.
    pub(super) fn expect(self, status: StatusCode) -> Result<Self, AttemptFailure> {
        if self.status == status {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.trim().chars().take(500).collect();
        let error = anyhow!("{} was answered with {} {text}", self.request, self.status);
        let temporary = self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS;
        Err(if temporary { AttemptFailure::Temporary(error) } else { AttemptFailure::Permanent(error) })
    }
}

impl Http {
    pub(super) fn new(host: &str, credentials: Option<Credentials>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        ensure!(
            !roots.is_empty() || is_this_machine(host),
            "this machine has no certificate authorities to verify {host}; set SSL_CERT_FILE to a file of them"
        );
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("configure TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            host: host.to_owned(),
            credentials,
            authorization: Mutex::default(),
        })
    }

    /// Returns the base URL of the registry's API.
    pub(super) fn base(&self) -> String {
        let scheme = if is_this_machine(&self.host) { "http" } else { "https" };
        // Docker Hub's API has another host name than its images.
        let host = if self.host == "docker.io" { "registry-1.docker.io" } else { &self.host };
        format!("{scheme}://{host}")
    }

    /// Returns the absolute URL of `place`, a URL or path that the registry sent.
    ///
    /// # Errors
    /// When it leads to another machine without TLS.
    pub(super) fn absolute(&self, place: &str) -> Result<String> {
        if place.starts_with('/') {
            return Ok(format!("{}{place}", self.base()));
        }
        let uri: Uri = place.parse().with_context(|| format!("{place:?} is not a URL"))?;
        let host = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
        let safe = uri.scheme_str() == Some("https") || is_this_machine(host);
        ensure!(safe && !host.is_empty(), "{} leads to {place}, which is not encrypted", self.host);
        Ok(place.to_owned())
    }

    /// Sends `request`. If the registry asks for authentication, logs in and sends it again.
    pub(super) async fn send(&self, request: RegistryRequest) -> Result<RegistryResponse, AttemptFailure> {
        let known = self.authorization.lock().await.clone();
        let answer = self.exchange(self.with_authorization(&request, known.as_ref())).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let authorization = self.log_in(&answer.headers).await?;
        let again = self.with_authorization(&request, Some(&authorization));
        *self.authorization.lock().await = Some(authorization);
        let answer = self.exchange(again).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.refused(answer),
            _ => Ok(answer),
        }
    }

    /// Returns the failure for a response that denies access, with advice.
    fn refused(&self, answer: RegistryResponse) -> Result<RegistryResponse, AttemptFailure> {
        let why = match &self.credentials {
            Some(_) => "the credentials that `docker login` stored do not allow it",
            None => "there are no credentials for it in docker's config.json",
        };
        let advice = format!("{why}: run `docker login {}` as a user who may push", self.host);
        answer.expect(StatusCode::OK).map_err(|failure| match failure {
            AttemptFailure::Temporary(error) | AttemptFailure::Permanent(error) => {
                AttemptFailure::Permanent(error.context(advice))
            }
        })
    }

    /// Returns `request` with the header `authorization` if it goes to the registry itself. Credentials are not sent to
    /// other hosts, such as the storage for uploads.
    fn with_authorization(
        &self,
        request: &RegistryRequest,
        authorization: Option<&HeaderValue>,
    ) -> RegistryRequest {
        let own = request.url.strip_prefix(&self.base()).is_some_and(|rest| rest.starts_with('/'));
        match authorization {
            Some(value) if own => request.clone().authorized(value.clone()),
            _ => request.clone(),
        }
    }

    /// Sends a request without authentication of its own.
    pub(super) async fn exchange(
        &self,
        request: RegistryRequest,
    ) -> Result<RegistryResponse, AttemptFailure> {
        let request_line = format!("{} {}", request.method, request.url);
        let RegistryRequest { method, url, headers, body, .. } = request;
        let mut message = hyper::Request::new(Full::new(body));
        *message.method_mut() = method;
        *message.uri_mut() = url
            .parse()
            .with_context(|| format!("{url:?} is not a URL"))
            .map_err(AttemptFailure::Permanent)?;
        *message.headers_mut() = headers;
        let exchange = async {
            let (parts, body) = self.client.request(message).await?.into_parts();
            let body = http_body_util::Limited::new(body, MAX_RESPONSE_BYTES)
                .collect()
                .await
                .map_err(|e| anyhow!(e))?;
            anyhow::Ok((parts, body.to_bytes()))
        };
        let answered = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(anyhow!("no answer in {} s", REQUEST_TIMEOUT.as_secs())));
        match answered {
            Ok((parts, body)) => Ok(RegistryResponse {
                request: request_line,
                status: parts.status,
                headers: parts.headers,
                body,
            }),
            Err(error) => Err(AttemptFailure::Temporary(error.context(request_line))),
        }
    }
}
