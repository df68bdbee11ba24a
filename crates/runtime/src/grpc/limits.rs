//! Limits of a gRPC server.

use std::time::Duration;

use crate::tls::ServerLimits;

/// The maximum size of a message that is received, in bytes. A hook with its certificates, or the labels of a pod, are
/// much smaller.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The maximum size of a message to health and reflection, which need no credentials, in bytes. It has a name.
pub const MAX_OPEN_MESSAGE_BYTES: usize = 4 << 10;

/// Limits on what clients can hold. A message has at most [`MAX_MESSAGE_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct GrpcLimits {
    /// Limits on connections.
    pub server: ServerLimits,
    /// Requests and streams at the same time, of all connections. The server rejects more with RESOURCE_EXHAUSTED.
    pub requests: usize,
    /// Timeout for the first message of a response, also if the client sets a later deadline.
    pub first_message_timeout: Duration,
    /// Timeout of a message of a request, from its first byte to its last.
    pub message_timeout: Duration,
    /// Requests at the same time whose callers are being authenticated on connections that are not proven. One peer has
    /// at most half of them. The server rejects more with RESOURCE_EXHAUSTED.
    pub unknown_requests: usize,
    /// Requests and streams at the same time to health and reflection. One peer has at most half of them.
    pub open_requests: usize,
    /// Timeout of a request or stream to health and reflection.
    pub open_timeout: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self {
            server: ServerLimits::default(),
            requests: 2048,
            first_message_timeout: Duration::from_secs(60),
            message_timeout: Duration::from_secs(10),
            unknown_requests: 512,
            open_requests: 64,
            open_timeout: Duration::from_secs(60),
        }
    }
}
