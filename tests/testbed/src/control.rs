//! The client's side of the sockets.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::PathBuf,
};

use tokio::net::UnixStream;

use crate::{
    error::{BedError, During},
    protocol::{Answer, Request, Spawn, receive, send},
};

/// Speaks to init or to the keeper. Holds no connection, so it may be used from any runtime.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

impl Control {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    async fn open(&self, request: &Request) -> Result<(UnixStream, Answer), BedError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            send(&mut stream, request).await?;
            let answer = receive::<Answer>(&mut stream).await?;
            Ok::<_, std::io::Error>((stream, answer))
        };
        exchange.await.during(|| format!("ask the bed at {} for {request:?}", self.socket.display()))
    }

    async fn ask(&self, request: &Request) -> Result<Answer, BedError> {
        self.open(request).await.map(|(_, answer)| answer)
    }

    pub(crate) async fn spawn(&self, spawn: Spawn) -> Result<i32, BedError> {
        let what = format!("start {}", spawn.argv.first().map_or("nothing", |program| program));
        match self.ask(&Request::Spawn(spawn)).await? {
            Answer::Spawned { pid } => Ok(pid),
            other => Err(refused(what, other)),
        }
    }

    pub(crate) async fn signal(&self, pid: i32, signal: i32) -> Result<(), BedError> {
        match self.ask(&Request::Signal { pid, signal }).await? {
            Answer::Done => Ok(()),
            other => Err(refused(format!("send signal {signal} to process {pid}"), other)),
        }
    }

    pub(crate) async fn wait(&self, pid: i32) -> Result<crate::process::Exit, BedError> {
        match self.ask(&Request::Wait { pid }).await? {
            Answer::Exited(exit) => Ok(exit),
            other => Err(refused(format!("wait for process {pid}"), other)),
        }
    }

    /// How the process ended, or `None` while it runs. Blocks for the time of one local exchange, so that it
    /// can be asked in places that can't await.
    pub(crate) fn status(&self, pid: i32) -> Result<Option<crate::process::Exit>, BedError> {
        let what = || format!("ask how process {pid} is");
        let answer = (|| {
            let mut stream = std::os::unix::net::UnixStream::connect(&self.socket)?;
            let mut line = serde_json::to_vec(&Request::Status { pid })?;
            line.push(b'\n');
            stream.write_all(&line)?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer)?;
            Ok(serde_json::from_str(&answer)?)
        })();
        match std::io::Result::during(answer, what)? {
            Answer::Exited(exit) => Ok(Some(exit)),
            Answer::Running => Ok(None),
            other => Err(refused(what(), other)),
        }
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<UnixStream, BedError> {
        match self.open(&Request::Connect { to }).await? {
            (stream, Answer::Connected) => Ok(stream),
            (_, other) => Err(refused(format!("connect to {to} inside"), other)),
        }
    }

    pub(crate) async fn expose(&self, at: SocketAddr, to: PathBuf) -> Result<UnixStream, BedError> {
        match self.open(&Request::Expose { at, to }).await? {
            (stream, Answer::Done) => Ok(stream),
            (_, other) => Err(refused(format!("listen on {at} inside"), other)),
        }
    }

    pub(crate) async fn forward(&self, to: SocketAddr) -> Result<SocketAddr, BedError> {
        match self.ask(&Request::Forward { to }).await? {
            Answer::Forwarded { at } => Ok(at),
            other => Err(refused(format!("forward a port to {to}"), other)),
        }
    }

    pub(crate) async fn detach(&self) -> Result<(), BedError> {
        match self.ask(&Request::Detach).await? {
            Answer::Done => Ok(()),
            other => Err(refused("go on without its owner".to_owned(), other)),
        }
    }

    pub(crate) async fn stop(&self) -> Result<(), BedError> {
        match self.ask(&Request::Stop).await? {
            Answer::Done => Ok(()),
            other => Err(refused("end".to_owned(), other)),
        }
    }
}

fn refused(what: String, answer: Answer) -> BedError {
    let message = match answer {
        Answer::Failed { message } => message,
        other => format!("it answered {other:?}"),
    };
    BedError::Refused { what, message }
}
