//! The URLs of webhooks.

use std::fmt;

use http::Uri;
use rustls_pki_types::ServerName;

use crate::text::excerpt;

const MAX_URL: usize = 2048;
/// The default name of the query parameter that contains the ID of a task.
const TASK_ID: &str = "task-id";

/// A valid HTTP or HTTPS URL of a webhook. Its host is a DNS name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    uri: Uri,
    is_https: bool,
}

impl WebhookUrl {
    /// Parses a URL. A fragment (`#...`) is removed, because clients do not send it.
    ///
    /// # Errors
    /// Fails if the URL is invalid or contains a user name. The error states what is valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |problem: &str| Err(format!("{:?} {problem}", excerpt(text)));
        if text.is_empty() {
            return Err("is required: http://<host>... or https://<host>...".to_owned());
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
        let Some(authority) = uri.authority() else { return bad("has no host") };
        if authority.as_str().contains('@') {
            return bad("contains a user name, which would not be sent, and would be visible in the rule");
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

    /// Returns the URL to poll the task `id`: this URL with `<key>=<id>` added to its query. An empty key stands for
    /// `task-id`.
    #[must_use]
    pub fn for_task(&self, key: &str, id: &str) -> Uri {
        let key = if key.is_empty() { TASK_ID } else { key };
        let added = form_urlencoded::Serializer::new(String::new()).append_pair(key, id).finish();
        let query = match self.uri.query() {
            None | Some("") => added,
            Some(query) => format!("{query}&{added}"),
        };
        let mut parts = self.uri.clone().into_parts();
        // This cannot fail: the path and the query come from a valid URL, and `append_pair` escapes the new pair.
        parts.path_and_query = format!("{}?{query}", self.uri.path()).parse().ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone())
    }

    /// Returns the URL.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns true if the scheme is `https`.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the host: a DNS name, or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        bare(self.uri.host().unwrap_or_default())
    }

    /// Returns the port. When the URL has none: 443 for `https`, 80 for `http`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

/// Removes the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}
