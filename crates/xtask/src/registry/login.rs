//! Login to a registry: by a password, or by a token from a token server (the distribution project's "Token
//! Authentication").

use anyhow::{Context, Result, anyhow};
use base64::{Engine, prelude::BASE64_STANDARD};
use http_auth::{ChallengeRef, parser::ChallengeParser};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{self, HeaderValue},
};
use serde_json::Value;

use super::{
    Credentials,
    attempts::AttemptFailure,
    http::{Http, RegistryRequest},
};

impl Http {
    /// Returns the header `authorization` that answers the challenges in the header `www-authenticate`.
    pub(super) async fn log_in(&self, headers: &HeaderMap) -> Result<HeaderValue, AttemptFailure> {
        let texts = headers.get_all(header::WWW_AUTHENTICATE);
        let texts: Vec<_> = texts.iter().filter_map(|value| value.to_str().ok()).collect();
        let challenges = || texts.iter().flat_map(|text| ChallengeParser::new(text)).filter_map(Result::ok);
        if let Some(bearer) = challenges().find(|each| each.scheme.eq_ignore_ascii_case("bearer")) {
            return self.token(&bearer).await;
        }
        let basic = challenges().any(|each| each.scheme.eq_ignore_ascii_case("basic"));
        match &self.credentials {
            Some(Credentials::Password { user, password }) if basic => {
                secret(&basic_of(user, password)).map_err(AttemptFailure::Permanent)
            }
            Some(_) => Err(AttemptFailure::Permanent(anyhow!(
                "{} asks for an unsupported kind of login: {texts:?}",
                self.host
            ))),
            None => Err(AttemptFailure::Permanent(anyhow!(
                "{} asks for a login, and docker's config.json has no credentials for it: run `docker login {}`",
                self.host,
                self.host
            ))),
        }
    }

    /// Fetches a token, also without credentials: some registries in private networks issue tokens to everybody.
    async fn token(&self, challenge: &ChallengeRef<'_>) -> Result<HeaderValue, AttemptFailure> {
        let parameter = |name: &str| {
            let mut parameters = challenge.params.iter();
            parameters.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_unescaped())
        };
        let realm = parameter("realm")
            .context("the registry's challenge names no token server")
            .and_then(|realm| self.absolute(&realm))
            .map_err(AttemptFailure::Permanent)?;
        let fields: Vec<_> =
            ["service", "scope"].into_iter().filter_map(|name| Some((name, parameter(name)?))).collect();
        let request = match &self.credentials {
            Some(Credentials::Token(token)) => {
                let mut fields = fields;
                fields.extend([
                    ("grant_type", "refresh_token".to_owned()),
                    ("refresh_token", token.clone()),
                    ("client_id", "podward-xtask".to_owned()),
                ]);
                RegistryRequest::new(Method::POST, realm)
                    .content("application/x-www-form-urlencoded", encoded(&fields).as_bytes())
            }
            other => {
                let joint = if realm.contains('?') { '&' } else { '?' };
                let request =
                    RegistryRequest::new(Method::GET, format!("{realm}{joint}{}", encoded(&fields)));
                match other {
                    Some(Credentials::Password { user, password }) => request
                        .authorized(secret(&basic_of(user, password)).map_err(AttemptFailure::Permanent)?),
                    _ => request,
                }
            }
        };
        let answer =
            self.exchange(request).await?.expect(StatusCode::OK).map_err(|failure| match failure {
                AttemptFailure::Permanent(error) => AttemptFailure::Permanent(
                    error.context(format!("run `docker login {}` again", self.host)),
                ),
                temporary @ AttemptFailure::Temporary(_) => temporary,
            })?;
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        ["token", "access_token"]
            .iter()
            .find_map(|name| document[*name].as_str())
            .context("the token server returned no token")
            .and_then(|token| secret(&format!("Bearer {token}")))
            .map_err(AttemptFailure::Permanent)
    }
}

fn basic_of(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Returns a header value that logs do not show.
fn secret(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .context("the credentials contain characters that are not allowed in a header")?;
    value.set_sensitive(true);
    Ok(value)
}

fn encoded(fields: &[(&str, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}
