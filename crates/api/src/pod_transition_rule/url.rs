//! URLs of webhooks.

use std::fmt;

use http::Uri;
use rustls_pki_types::ServerName;

use crate::words::shortened;

const MAX_URL: usize = 2048;
/// The query's name for a task when the rule gives no other.
const TASK_ID: &str = "task-id";

/// A URL that a webhook can be asked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    uri: Uri,
    is_https: bool,
}

impl WebhookUrl {
    /// Reads a URL: `http` or `https`, a host, and perhaps port, path and query. What follows a `#` is dropped: it is not for servers.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |problem: &str| Err(format!("{:?} {problem}", shortened(text)));
        if text.is_empty() {
            return Err("a URL is needed: http://<host>... or https://<host>...".to_owned());
        }
        if text.len() > MAX_URL {
            return bad(&format!("is longer than {MAX_URL} bytes"));
        }
        let uri: Uri = match text.parse() {
            Ok(uri) => uri,
            Err(error) => return bad(&format!("is not a URL: {error}")),
        };
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return bad("must begin with http:// or https://"),
        };
        let Some(authority) = uri.authority() else { return bad("names no host") };
        if authority.as_str().contains('@') {
            return bad(
                "has a user's name in it, which is not sent; everybody who may read the rule could read it",
            );
        }
        let host = bare(authority.host());
        if ServerName::try_from(host).is_err() {
            return bad("has a host that is neither a DNS name nor an IP address");
        }
        let port = authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
        if port.is_some() && authority.port_u16().is_none_or(|port| port == 0) {
            return bad("has a port that is not a number from 1 to 65535");
        }
        Ok(Self { uri, is_https })
    }

    /// The URL that asks for the state of the task `id`: this one with `<key>=<id>` added to its query. `task-id` for an empty key.
    #[must_use]
    pub fn for_task(&self, key: &str, id: &str) -> Uri {
        let key = if key.is_empty() { TASK_ID } else { key };
        let added = form_urlencoded::Serializer::new(String::new()).append_pair(key, id).finish();
        let query = match self.uri.query() {
            None | Some("") => added,
            Some(query) => format!("{query}&{added}"),
        };
        let mut parts = self.uri.clone().into_parts();
        // The path and the query of a URL, and what `append_pair` gives, are such by construction.
        parts.path_and_query = format!("{}?{query}", self.uri.path()).parse().ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone())
    }

    /// The URL itself.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Whether it is asked over TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The host: a name or an IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        bare(self.uri.host().unwrap_or_default())
    }

    /// The port, 80 or 443 when the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

/// An IPv6 address stands in brackets in a URL.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}
