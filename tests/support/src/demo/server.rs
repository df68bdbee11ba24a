//! The behaviours of the demo server.

use std::fmt;

use serde::Serialize;

/// The behaviour of the demo server on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemoServer {
    /// The server exits at once.
    ExitsAtOnce,
    /// The server finishes the requests in flight and closes each connection after its response.
    Graceful,
}

impl DemoServer {
    /// Returns the demo server's name for the behaviour.
    pub(super) const fn mode(self) -> &'static str {
        match self {
            DemoServer::ExitsAtOnce => "immediate",
            DemoServer::Graceful => "graceful",
        }
    }
}

impl fmt::Display for DemoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DemoServer::ExitsAtOnce => "exits at once",
            DemoServer::Graceful => "graceful",
        })
    }
}
