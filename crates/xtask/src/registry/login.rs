//! What a registry asks for before it lets anybody in: a password, or a token from a server that it names (the distribution project's
//! "Token Authentication").

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
    attempts::Failure,
    http::{Http, Request},
};

impl Http {
    /// What to say in the header `authorization`, by what the registry said in `www-authenticate`.
    pub(super) async fn log_in(&self, headers: &HeaderMap) -> Result<HeaderValue, Failure> {
        let asked = headers.get_all(header::WWW_AUTHENTICATE);
        let asked: Vec<_> = asked.iter().filter_map(|value| value.to_str().ok()).collect();
        let challenges = || asked.iter().flat_map(|text| ChallengeParser::new(text)).filter_map(Result::ok);
        if let Some(bearer) = challenges().find(|each| each.scheme.eq_ignore_ascii_case("bearer")) {
            return self.token(&bearer).await;
        }
        let basic = challenges().any(|each| each.scheme.eq_ignore_ascii_case("basic"));
        match &self.credentials {
            Some(Credentials::Password { user, password }) if basic => {
                secret(&basic_of(user, password)).map_err(Failure::Lasting)
            }
            Some(_) => Err(Failure::Lasting(anyhow!(
                "{} asks for a login of a kind not known here: {asked:?}",
                self.host
            ))),
            None => Err(Failure::Lasting(anyhow!(
                "{} wants a login, and there is none for it in docker's config.json: `docker login {}`",
                self.host,
                self.host
            ))),
        }
    }

    /// Fetches a token. Without credentials too: some registries on a private network give tokens to everybody.
    async fn token(&self, challenge: &ChallengeRef<'_>) -> Result<HeaderValue, Failure> {
        let parameter = |name: &str| {
            let mut parameters = challenge.params.iter();
            parameters.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_unescaped())
        };
        let realm = parameter("realm")
            .context("it names no server to get a token from")
            .and_then(|realm| self.absolute(&realm))
            .map_err(Failure::Lasting)?;
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
                Request::new(Method::POST, realm)
                    .content("application/x-www-form-urlencoded", encoded(&fields).as_bytes())
            }
            other => {
                let joint = if realm.contains('?') { '&' } else { '?' };
                let request = Request::new(Method::GET, format!("{realm}{joint}{}", encoded(&fields)));
                match other {
                    Some(Credentials::Password { user, password }) => {
                        request.authorized(secret(&basic_of(user, password)).map_err(Failure::Lasting)?)
                    }
                    _ => request,
                }
            }
        };
        let answer =
            self.exchange(request).await?.expect(StatusCode::OK).map_err(|failure| match failure {
                Failure::Lasting(error) => {
                    Failure::Lasting(error.context(format!("log in again: `docker login {}`", self.host)))
                }
                passing @ Failure::Passing(_) => passing,
            })?;
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        ["token", "access_token"]
            .iter()
            .find_map(|name| document[*name].as_str())
            .context("the server that gives tokens gave none")
            .and_then(|token| secret(&format!("Bearer {token}")))
            .map_err(Failure::Lasting)
    }
}

fn basic_of(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// A header's value that no log shows.
fn secret(text: &str) -> Result<HeaderValue> {
    let mut value =
        HeaderValue::from_str(text).context("the credentials have characters that no header can have")?;
    value.set_sensitive(true);
    Ok(value)
}

fn encoded(fields: &[(&str, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}
