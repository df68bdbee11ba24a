//! Limits of a gRPC server.

use std::time::Duration;

use crate::tls::ServerLimits;

/// The maximum size of a message that is received, in bytes. A hook with its certificates, or the labels of a pod, are
/// much smaller.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Limits on what clients can hold. A message has at most [`MAX_MESSAGE_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct GrpcLimits {
    /// Limits on connections.
    pub server: ServerLimits,
    /// Requests and streams at the same time, of all connections. The server rejects more with RESOURCE_EXHAUSTED.
    pub requests: usize,
    /// Timeout for the first message of a response, also if the client sets a later deadline.
    pub first_message_timeout: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self {
            server: ServerLimits::default(),
            requests: 2048,
            first_message_timeout: Duration::from_secs(60),
        }
    }
}
