//! The protocol of the Unix sockets of a cluster: [`init`](crate::init) serves `control.sock` inside the namespaces,
//! the init of each further node `control-NODE.sock` in those of the node, and the [`supervisor`](crate::supervisor)
//! `supervisor.sock` outside. The proxy before the second API server serves `lag.sock`.
//!
//! A connection carries one request, a line of JSON, and one response, a line of JSON. After
//! [`ControlResponse::Connected`] the connection is a plain relay of bytes.

use std::{io, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::exit::Exit;

/// The limit for a line, in bytes. Valid messages are much shorter.
const LONGEST_LINE: usize = 1 << 20;

/// The line that an init prints when it serves its control socket.
pub(crate) const READY: &str = "ready";

/// A process to start inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpawnRequest {
    /// The name by which the process is found. A later process with the same name takes its place.
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    /// Added to the environment that started the cluster.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    /// Standard output and error are appended to this file.
    pub(crate) log: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ControlRequest {
    /// To init.
    Spawn(SpawnRequest),
    /// To init: only processes that it spawned and that still run.
    Signal { pid: i32, signal: i32 },
    /// To init: the last process with this name.
    Find { name: String },
    /// To init: answered when the process has ended.
    Wait { pid: i32 },
    /// To init: answered at once.
    Status { pid: i32 },
    /// To init: open a TCP connection inside the cluster and relay it.
    Connect { to: SocketAddr },
    /// To init: listen on `at` inside the cluster and relay every connection to the Unix socket `to`, until this
    /// connection ends. Init closes it when the port and its connections are closed.
    Expose { at: SocketAddr, to: PathBuf },
    /// To the init of a node: connect the node with the other nodes, or cut it off from them.
    Link { connected: bool },
    /// To the proxy before the second API server: delay its watches.
    Lag { milliseconds: u64 },
    /// To the supervisor: listen on a loopback port of the host and relay every connection to `to` inside the
    /// cluster.
    Forward { to: SocketAddr },
    /// To the supervisor: keep the cluster when the owner ends.
    Detach,
    /// To the supervisor: end the cluster. The response comes when the end has begun.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ControlResponse {
    Done,
    Spawned { pid: i32 },
    Found { pid: i32, spawn: SpawnRequest },
    Running,
    Exited(Exit),
    Connected,
    Forwarded { at: SocketAddr },
    Failed { message: String },
}

/// Writes one message as a line.
pub(crate) async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    to.flush().await
}

/// Reads one line and no byte after it. The following bytes may belong to a relay.
pub(crate) async fn receive<T: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<T> {
    let mut line = Vec::with_capacity(256);
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(serde_json::from_slice(&line)?),
            byte if line.len() < LONGEST_LINE => line.push(byte),
            _ => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of more than 1 MiB"));
            }
        }
    }
}
