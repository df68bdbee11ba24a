//! What is said over the two Unix sockets of a bed: `control.sock`, served inside the namespaces by
//! [`init`](crate::init), and `keeper.sock`, served outside by the [`keeper`](crate::keeper).
//!
//! One connection carries one request: a line of JSON, answered by a line of JSON. After
//! [`Answer::Connected`] the connection is a plain relay of bytes.

use std::{io, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::process::Exit;

/// Lines longer than this are refused: nothing honest comes near.
const LONGEST_LINE: usize = 1 << 20;

/// A process to start inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spawn {
    pub(crate) argv: Vec<String>,
    /// Added to the environment that the bed was started with.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    /// Standard output and error are appended to this file.
    pub(crate) log: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// To init.
    Spawn(Spawn),
    /// To init: only processes that it spawned and that still run.
    Signal { pid: i32, signal: i32 },
    /// To init: answered when the process has ended.
    Wait { pid: i32 },
    /// To init: answered at once.
    Status { pid: i32 },
    /// To init: open a TCP connection inside and relay it.
    Connect { to: SocketAddr },
    /// To init: listen at `at` inside, and relay every connection to the Unix socket `to`, until this connection ends. Its end from
    /// init's side says that nothing of it is left.
    Expose { at: SocketAddr, to: PathBuf },
    /// To the keeper: listen on a loopback port of the host and relay every connection to `to` inside.
    Forward { to: SocketAddr },
    /// To the keeper: go on when the owner ends.
    Detach,
    /// To the keeper: end the bed. Answered when the end has begun.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done,
    Spawned { pid: i32 },
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

/// Reads one line and not a byte more, since what follows may belong to a relay.
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
