//! A page that a kube-proxy serves.

use hyper::body::Bytes;

/// A page of a kube-proxy.
pub(crate) struct ProxyPage {
    /// True if the HTTP status is 2xx.
    pub(crate) is_success: bool,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The header `Date`.
    pub(crate) date: Option<String>,
    /// The body. A page with metrics may have only the lines that a reading needs.
    pub(crate) body: Bytes,
}
