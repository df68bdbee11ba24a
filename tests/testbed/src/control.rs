//! The client of the control sockets.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use tokio::net::UnixStream;

use crate::{
    error::{During, TestClusterError},
    protocol::{ControlRequest, ControlResponse, SpawnRequest, receive, send},
};

/// Sends requests to init or to the supervisor. It holds no connection, so that any runtime can use it.
#[derive(Clone, Debug)]
pub(crate) struct ControlClient {
    socket: PathBuf,
}

impl ControlClient {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    async fn open(
        &self,
        request: &ControlRequest,
    ) -> Result<(UnixStream, ControlResponse), TestClusterError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            send(&mut stream, request).await?;
            let answer = receive::<ControlResponse>(&mut stream).await?;
            Ok::<_, std::io::Error>((stream, answer))
        };
        exchange.await.during(|| format!("ask the cluster at {} for {request:?}", self.socket.display()))
    }

    async fn ask(&self, request: &ControlRequest) -> Result<ControlResponse, TestClusterError> {
        self.open(request).await.map(|(_, answer)| answer)
    }

    pub(crate) async fn spawn(&self, spawn: SpawnRequest) -> Result<i32, TestClusterError> {
        let what = format!("start {}", spawn.argv.first().map_or("nothing", |program| program));
        match self.ask(&ControlRequest::Spawn(spawn)).await? {
            ControlResponse::Spawned { pid } => Ok(pid),
            other => Err(refused(what, other)),
        }
    }

    /// Returns the last process with this name, which may have ended, and how it was started.
    pub(crate) async fn find(&self, name: &str) -> Result<(i32, SpawnRequest), TestClusterError> {
        match self.ask(&ControlRequest::Find { name: name.to_owned() }).await? {
            ControlResponse::Found { pid, spawn } => Ok((pid, spawn)),
            other => Err(refused(format!("find {name}"), other)),
        }
    }

    pub(crate) async fn signal(&self, pid: i32, signal: i32) -> Result<(), TestClusterError> {
        match self.ask(&ControlRequest::Signal { pid, signal }).await? {
            ControlResponse::Done => Ok(()),
            other => Err(refused(format!("send signal {signal} to process {pid}"), other)),
        }
    }

    pub(crate) async fn wait(&self, pid: i32) -> Result<crate::exit::Exit, TestClusterError> {
        match self.ask(&ControlRequest::Wait { pid }).await? {
            ControlResponse::Exited(exit) => Ok(exit),
            other => Err(refused(format!("wait for process {pid}"), other)),
        }
    }

    /// Returns how the process ended, or `None` while it runs. Blocks for one local request, so that callers need not
    /// be async.
    pub(crate) fn status(&self, pid: i32) -> Result<Option<crate::exit::Exit>, TestClusterError> {
        let what = || format!("ask how process {pid} is");
        let answer = (|| {
            let mut stream = std::os::unix::net::UnixStream::connect(&self.socket)?;
            let mut line = serde_json::to_vec(&ControlRequest::Status { pid })?;
            line.push(b'\n');
            stream.write_all(&line)?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer)?;
            Ok(serde_json::from_str(&answer)?)
        })();
        match std::io::Result::during(answer, what)? {
            ControlResponse::Exited(exit) => Ok(Some(exit)),
            ControlResponse::Running => Ok(None),
            other => Err(refused(what(), other)),
        }
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<UnixStream, TestClusterError> {
        match self.open(&ControlRequest::Connect { to }).await? {
            (stream, ControlResponse::Connected) => Ok(stream),
            (_, other) => Err(refused(format!("connect to {to} inside"), other)),
        }
    }

    pub(crate) async fn expose(&self, at: SocketAddr, to: PathBuf) -> Result<UnixStream, TestClusterError> {
        match self.open(&ControlRequest::Expose { at, to }).await? {
            (stream, ControlResponse::Done) => Ok(stream),
            (_, other) => Err(refused(format!("listen on {at} inside"), other)),
        }
    }

    pub(crate) async fn link(&self, connected: bool) -> Result<(), TestClusterError> {
        match self.ask(&ControlRequest::Link { connected }).await? {
            ControlResponse::Done => Ok(()),
            other => Err(refused(format!("{} a node", if connected { "connect" } else { "cut off" }), other)),
        }
    }

    pub(crate) async fn lag(&self, lag: Duration) -> Result<(), TestClusterError> {
        let milliseconds = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        match self.ask(&ControlRequest::Lag { milliseconds }).await? {
            ControlResponse::Done => Ok(()),
            other => Err(refused(format!("delay watches by {lag:?}"), other)),
        }
    }

    pub(crate) async fn forward(&self, to: SocketAddr) -> Result<SocketAddr, TestClusterError> {
        match self.ask(&ControlRequest::Forward { to }).await? {
            ControlResponse::Forwarded { at } => Ok(at),
            other => Err(refused(format!("forward a port to {to}"), other)),
        }
    }

    pub(crate) async fn detach(&self) -> Result<(), TestClusterError> {
        match self.ask(&ControlRequest::Detach).await? {
            ControlResponse::Done => Ok(()),
            other => Err(refused("go on without its owner".to_owned(), other)),
        }
    }

    pub(crate) async fn stop(&self) -> Result<(), TestClusterError> {
        match self.ask(&ControlRequest::Stop).await? {
            ControlResponse::Done => Ok(()),
            other => Err(refused("end".to_owned(), other)),
        }
    }
}

fn refused(what: String, answer: ControlResponse) -> TestClusterError {
    let message = match answer {
        ControlResponse::Failed { message } => message,
        other => format!("it answered {other:?}"),
    };
    TestClusterError::Refused { what, message }
}
