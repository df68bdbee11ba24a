//! Requests to a registry, with what it takes to be let in.

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

use super::{Credentials, attempts::Failure, name::is_this_machine};

/// Longer than a layer takes over a slow line.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of an answer is read: manifests are small, and errors are to be shown.
const LIMIT: usize = 4 << 20;

pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    pub(super) host: String,
    pub(super) credentials: Option<Credentials>,
    /// What the registry has asked for, once it has.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A request, which can be sent more than once.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
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

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    asked: String,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn text(&self, name: &HeaderName) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// This answer, if it has that status. Others are failures, some of which may pass.
    pub(super) fn expect(self, status: StatusCode) -> Result<Self, Failure> {
        if self.status == status {
            return Ok(self);
        }
        let said = String::from_utf8_lossy(&self.body);
        let said: String = said.trim().chars().take(500).collect();
        let error = anyhow!("{} was answered with {} {said}", self.asked, self.status);
        let passing = self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS;
        Err(if passing { Failure::Passing(error) } else { Failure::Lasting(error) })
    }
}

impl Http {
    pub(super) fn new(host: &str, credentials: Option<Credentials>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        ensure!(
            !roots.is_empty() || is_this_machine(host),
            "this machine has no certificate authorities to check {host} by; name a file of them by SSL_CERT_FILE"
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

    /// Where the registry's API is.
    pub(super) fn base(&self) -> String {
        let scheme = if is_this_machine(&self.host) { "http" } else { "https" };
        // The one registry whose name is not where it is.
        let host = if self.host == "docker.io" { "registry-1.docker.io" } else { &self.host };
        format!("{scheme}://{host}")
    }

    /// A place that the registry names, maybe without its own address. Nothing is sent in the clear to another machine.
    pub(super) fn absolute(&self, place: &str) -> Result<String> {
        if place.starts_with('/') {
            return Ok(format!("{}{place}", self.base()));
        }
        let uri: Uri = place.parse().with_context(|| format!("{place:?} is no URL"))?;
        let host = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
        let safe = uri.scheme_str() == Some("https") || is_this_machine(host);
        ensure!(safe && !host.is_empty(), "{} leads to {place}, which is not encrypted", self.host);
        Ok(place.to_owned())
    }

    /// Sends `request`, and once more if the registry wants to know who we are.
    pub(super) async fn send(&self, request: Request) -> Result<Answer, Failure> {
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

    /// An answer that says we may not, with what to do about it.
    fn refused(&self, answer: Answer) -> Result<Answer, Failure> {
        let why = match &self.credentials {
            Some(_) => "the credentials that `docker login` left don't allow it",
            None => "there are no credentials for it in docker's config.json",
        };
        let advice = format!("{why}: `docker login {}` as somebody who may push", self.host);
        answer.expect(StatusCode::OK).map_err(|failure| match failure {
            Failure::Passing(error) | Failure::Lasting(error) => Failure::Lasting(error.context(advice)),
        })
    }

    /// Only the registry itself is told who we are, not where it keeps uploads.
    fn with_authorization(&self, request: &Request, authorization: Option<&HeaderValue>) -> Request {
        let own = request.url.strip_prefix(&self.base()).is_some_and(|rest| rest.starts_with('/'));
        match authorization {
            Some(value) if own => request.clone().authorized(value.clone()),
            _ => request.clone(),
        }
    }

    /// Sends a request as it is.
    pub(super) async fn exchange(&self, request: Request) -> Result<Answer, Failure> {
        let asked = format!("{} {}", request.method, request.url);
        let Request { method, url, headers, body, .. } = request;
        let mut message = hyper::Request::new(Full::new(body));
        *message.method_mut() = method;
        *message.uri_mut() =
            url.parse().with_context(|| format!("{url:?} is no URL")).map_err(Failure::Lasting)?;
        *message.headers_mut() = headers;
        let exchange = async {
            let (parts, body) = self.client.request(message).await?.into_parts();
            let body = http_body_util::Limited::new(body, LIMIT).collect().await.map_err(|e| anyhow!(e))?;
            anyhow::Ok((parts, body.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| Err(anyhow!("no answer in {} s", PATIENCE.as_secs())));
        match answered {
            Ok((parts, body)) => Ok(Answer { asked, status: parts.status, headers: parts.headers, body }),
            Err(error) => Err(Failure::Passing(error.context(asked))),
        }
    }
}
