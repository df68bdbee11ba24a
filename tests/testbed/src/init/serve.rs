//! The requests to init.

use std::{io, path::PathBuf, sync::Arc};

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinSet,
};

use super::{children::Children, links::Links};
use crate::protocol::{ControlRequest, ControlResponse, receive, send};

/// Answers the single request of a connection.
pub(crate) async fn serve(mut stream: UnixStream, children: Arc<Children>, links: Links) {
    let Ok(request) = receive::<ControlRequest>(&mut stream).await else {
        return;
    };
    let answer = match request {
        ControlRequest::Connect { to } => match TcpStream::connect(to).await {
            Ok(tcp) => return relay(stream, tcp).await,
            Err(error) => failed(error),
        },
        ControlRequest::Expose { at, to } => match TcpListener::bind(at).await {
            Ok(listener) => return expose(stream, listener, to).await,
            Err(error) => failed(error),
        },
        ControlRequest::Spawn(spawn) => match children.spawn(&spawn) {
            Ok(pid) => ControlResponse::Spawned { pid },
            Err(error) => failed(error),
        },
        ControlRequest::Signal { pid, signal } => match children.signal(pid, signal) {
            Ok(()) => ControlResponse::Done,
            Err(error) => failed(error),
        },
        ControlRequest::Find { name } => match children.find(&name) {
            Ok((pid, spawn)) => ControlResponse::Found { pid, spawn },
            Err(error) => failed(error),
        },
        ControlRequest::Wait { pid } => match children.watch(pid) {
            Ok(mut status) => match status.wait_for(Option::is_some).await.map(|exit| *exit) {
                Ok(Some(exit)) => ControlResponse::Exited(exit),
                _ => ControlResponse::Failed { message: "the cluster ends".to_owned() },
            },
            Err(error) => failed(error),
        },
        ControlRequest::Status { pid } => match children.watch(pid) {
            Ok(status) => status.borrow().map_or(ControlResponse::Running, ControlResponse::Exited),
            Err(error) => failed(error),
        },
        // It blocks for milliseconds. Meanwhile nobody else collects the exit status of `ip`.
        ControlRequest::Link { connected } => match links.set(connected) {
            Ok(()) => ControlResponse::Done,
            Err(error) => failed(error),
        },
        ControlRequest::Forward { .. } | ControlRequest::Detach | ControlRequest::Stop => {
            ControlResponse::Failed { message: "that is the supervisor's business".to_owned() }
        }
        ControlRequest::Lag { .. } => {
            ControlResponse::Failed { message: "that is the business of the API server's proxy".to_owned() }
        }
    };
    // A client that has disconnected needs no response.
    let _ = send(&mut stream, &answer).await;
}

async fn relay(mut stream: UnixStream, mut tcp: TcpStream) {
    let _ = tcp.set_nodelay(true);
    if send(&mut stream, &ControlResponse::Connected).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut tcp).await;
    }
}

/// Relays connections to `listener` until the client closes its connection.
async fn expose(mut stream: UnixStream, listener: TcpListener, to: PathBuf) {
    if send(&mut stream, &ControlResponse::Done).await.is_err() {
        return;
    }
    let (mut relays, mut byte) = (JoinSet::new(), [0]);
    loop {
        tokio::select! {
            _ = stream.read(&mut byte) => break,
            accepted = listener.accept() => if let Ok((tcp, _)) = accepted {
                relays.spawn(relay_out(tcp, to.clone()));
            },
            Some(_) = relays.join_next() => {}
        }
    }
    drop(listener);
    relays.shutdown().await;
}

/// Closes the connection if the server outside is gone, as the server would.
async fn relay_out(mut tcp: TcpStream, to: PathBuf) {
    let _ = tcp.set_nodelay(true);
    if let Ok(mut outside) = UnixStream::connect(to).await {
        let _ = tokio::io::copy_bidirectional(&mut tcp, &mut outside).await;
    }
}

fn failed(error: io::Error) -> ControlResponse {
    ControlResponse::Failed { message: error.to_string() }
}
