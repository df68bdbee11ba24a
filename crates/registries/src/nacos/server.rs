//! One address of a Nacos: the version of its interface, the token, and calls.

use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use crate::connection::Credentials;
use crate::error::{RegistryError, RegistryErrorKind};
use crate::http_client::{HttpClient, HttpResponse};
use crate::limits::LargeRead;

use super::api::{Api, Parameters};
use super::wire::Login;

/// The paths that log in: of Nacos 3, and of older ones.
const LOGINS: [&str; 2] = ["v3/auth/user/login", "v1/auth/login"];
/// A token of this age may be invalid although it has not expired: the server may have been restarted with another key.
const YOUNG: Duration = Duration::from_secs(10);
/// The longest time for which a token is used.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The media type of parameters.
const FORM: &str = "application/x-www-form-urlencoded";

/// One address.
pub(super) struct Server {
    pub(super) url: String,
    http: HttpClient,
    credentials: Credentials,
    api: Mutex<Option<Api>>,
    /// Held during a login, so that many calls log in once.
    token: tokio::sync::Mutex<Option<Token>>,
}

struct Token {
    value: SecretString,
    since: Instant,
    /// Less than the time until it becomes invalid.
    lifetime: Duration,
}

/// What is called: the method, the path below the address, and the parameters.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) parameters: Parameters,
}

impl Call {
    pub(super) fn get(path: &'static str, parameters: Parameters) -> Self {
        Self { method: Method::GET, path, parameters }
    }
}

impl Server {
    pub(super) fn new(url: String, http: HttpClient, credentials: Credentials) -> Self {
        Self { url, http, credentials, api: Mutex::default(), token: tokio::sync::Mutex::default() }
    }

    /// Returns the newest version of the interface that the server has.
    ///
    /// # Errors
    /// Fails if the server is not reached, or has none of them.
    pub(super) async fn api(&self, doing: &str) -> Result<Api, RegistryError> {
        if let Some(api) = *self.api.lock() {
            return Ok(api);
        }
        for api in Api::ALL {
            let mut parameters = vec![("serviceName", "podward".to_owned())];
            if api == Api::V1 {
                parameters = vec![("serviceName", "DEFAULT_GROUP@@podward".to_owned())];
            }
            let response = self.call(&Call::get(api.visible(), parameters), doing).await?;
            match response.status {
                StatusCode::NOT_FOUND | StatusCode::GONE => {}
                status if status.is_success() => {
                    *self.api.lock() = Some(api);
                    return Ok(api);
                }
                _ => return Err(response.failure(doing, &self.url)),
            }
        }
        let reason = "HTTP status 404: is the path of the address that of Nacos (/nacos)?";
        Err(self.error(RegistryErrorKind::Rejected, doing, reason.to_owned()))
    }

    /// Forgets the version: the server may have been replaced by a newer one.
    pub(super) fn forget_api(&self) {
        *self.api.lock() = None;
    }

    /// Calls the server, with a token if there are credentials, and returns the response whatever its status.
    ///
    /// # Errors
    /// Fails if the login fails, or as [`HttpClient::send`].
    pub(super) async fn call(&self, call: &Call, doing: &str) -> Result<HttpResponse, RegistryError> {
        self.call_with(call, doing, None).await
    }

    /// As [`call`](Self::call), for a read of several calls. `place` is from the response to an earlier one.
    pub(super) async fn call_with(
        &self,
        call: &Call,
        doing: &str,
        place: Option<LargeRead>,
    ) -> Result<HttpResponse, RegistryError> {
        let late = |reason| self.error(RegistryErrorKind::Unavailable, doing, reason);
        let token =
            LargeRead::within(place.as_ref(), self.token(doing, MAX_LIFETIME)).await.map_err(late)??;
        let request = self.request(call, token.as_ref(), doing)?;
        let response = self.http.send_with(request, doing, place).await?;
        let is_denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status);
        if !is_denied || !matches!(self.credentials, Credentials::Password { .. }) {
            return Ok(response);
        }
        // A denied call changes nothing. Its response may be large.
        drop(response);
        let token = self.token(doing, YOUNG).await?;
        self.http.send(self.request(call, token.as_ref(), doing)?, doing).await
    }

    fn request(
        &self,
        call: &Call,
        token: Option<&SecretString>,
        doing: &str,
    ) -> Result<Request<Full<Bytes>>, RegistryError> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(&call.parameters).finish();
        let has_body = [Method::POST, Method::PUT].contains(&call.method);
        let request = match has_body {
            true => Request::builder()
                .uri(format!("{}/{}", self.url, call.path))
                .header(CONTENT_TYPE, HeaderValue::from_static(FORM)),
            false => Request::builder().uri(format!("{}/{}?{form}", self.url, call.path)),
        };
        let body = if has_body { Bytes::from(form) } else { Bytes::new() };
        let unusable = |reason: String| self.error(RegistryErrorKind::Rejected, doing, reason);
        let mut request = request
            .method(&call.method)
            .body(Full::new(body))
            .map_err(|error| unusable(error.to_string()))?;
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
                .map_err(|_| unusable("the token is unusable".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Returns a token, and logs in if there is none, or if it has reached `max_age`.
    async fn token(&self, doing: &str, max_age: Duration) -> Result<Option<SecretString>, RegistryError> {
        let (user, password) = match &self.credentials {
            Credentials::Anonymous => return Ok(None),
            Credentials::Token(token) => return Ok(Some(token.clone())),
            Credentials::Password { user, password } => (user, password),
        };
        let now = Instant::now();
        let mut stored = self.token.lock().await;
        if let Some(token) = stored.as_ref().filter(|token| now - token.since < token.lifetime.min(max_age)) {
            return Ok(Some(token.value.clone()));
        }
        *stored = None;
        for path in LOGINS {
            let parameters =
                vec![("username", user.clone()), ("password", password.expose_secret().to_owned())];
            let login = Call { method: Method::POST, path, parameters };
            let response = self.http.login(self.request(&login, None, doing)?, doing).await?;
            match response.status {
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => {}
                status if status.is_success() => {
                    let Ok(Login { access_token, token_ttl }) = serde_json::from_slice(&response.body) else {
                        // The body may contain a token.
                        let reason = "the response to the login has no accessToken and tokenTtl";
                        return Err(self.error(RegistryErrorKind::Invalid, doing, reason.to_owned()));
                    };
                    let value = SecretString::from(access_token);
                    let lifetime = Duration::from_secs(token_ttl).min(MAX_LIFETIME).mul_f64(0.8);
                    *stored = Some(Token { value: value.clone(), since: now, lifetime });
                    return Ok(Some(value));
                }
                _ => {
                    let error = response.failure(doing, &self.url);
                    return Err(RegistryError { reason: format!("the login: {}", error.reason), ..error });
                }
            }
        }
        let reason = "Nacos has no login: is the path of the address that of Nacos (/nacos)?";
        Err(self.error(RegistryErrorKind::Rejected, doing, reason.to_owned()))
    }

    pub(super) fn error(&self, kind: RegistryErrorKind, doing: &str, reason: String) -> RegistryError {
        RegistryError { doing: doing.to_owned(), address: self.url.clone(), reason, kind }
    }

    /// Waits for the right to read much.
    ///
    /// # Errors
    /// Fails as [`LargeReads::begin`](crate::limits::LargeReads::begin).
    pub(super) async fn begin_large(&self) -> Result<LargeRead, String> {
        self.http.begin_large().await
    }

    /// Writes what an error hides into the log.
    pub(super) fn log(&self, error: &RegistryError, detail: &str) {
        self.http.log(error, detail);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::connection::Connection;
    use crate::dialer::DirectDialer;

    use super::*;

    #[tokio::test]
    async fn a_login_does_not_keep_the_right_to_read_much() {
        // It never answers.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/nacos", listener.local_addr().unwrap());
        let credentials = Credentials::Password { user: "u".to_owned(), password: "p".into() };
        let connection = Connection {
            addresses: vec![url.clone()],
            tls: None,
            credentials: credentials.clone(),
            timeout: Duration::from_secs(5),
            dialer: Arc::new(DirectDialer),
        };
        let server = Server::new(url, HttpClient::new(&connection).unwrap(), credentials);
        let call = Call::get("list", Parameters::default());
        let error = server.call_with(&call, "read", Some(LargeRead::ended())).await.unwrap_err();
        assert!(error.reason.contains("within 10 s"), "{error}");
    }
}
