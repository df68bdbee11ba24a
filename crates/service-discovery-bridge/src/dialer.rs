//! Connections to registries whose addresses users wrote.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use podward_registries::{DialFailure, DialProblem, Dialer};
use podward_runtime::address_policy::{DialError, GuardedDialer};
use tokio::net::TcpStream;

/// The longest time for a connection. Calls have a shorter timeout of their own.
const LIMIT: Duration = Duration::from_secs(30);

/// Opens connections to the addresses that the policy allows.
#[derive(Debug)]
pub(crate) struct RegistryDialer(pub(crate) GuardedDialer);

#[async_trait]
impl Dialer for RegistryDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = self.0.connect(host, port, LIMIT).await.map_err(for_registry)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Returns `error` with what the user who wrote the address may read of it.
fn for_registry(error: DialError) -> io::Error {
    let problem = match &error {
        DialError::NotAllowed { .. } => DialProblem::NotAllowed,
        DialError::Name { .. } => DialProblem::NotResolved,
        DialError::ApiServerUnknown | DialError::ApiServerName { .. } => DialProblem::NotReady,
        // Its cause says whether the connection was refused.
        DialError::Tcp { .. } => return io::Error::other(error),
    };
    io::Error::other(DialFailure { problem, source: error.into() })
}
