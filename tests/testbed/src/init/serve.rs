//! Requests to init.

use std::{io, path::PathBuf, sync::Arc};

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinSet,
};

use super::children::Children;
use crate::protocol::{Answer, Request, receive, send};

/// Answers the one request of a connection.
pub(crate) async fn serve(mut stream: UnixStream, children: Arc<Children>) {
    let Ok(request) = receive::<Request>(&mut stream).await else {
        return;
    };
    let answer = match request {
        Request::Connect { to } => match TcpStream::connect(to).await {
            Ok(tcp) => return relay(stream, tcp).await,
            Err(error) => failed(error),
        },
        Request::Expose { at, to } => match TcpListener::bind(at).await {
            Ok(listener) => return expose(stream, listener, to).await,
            Err(error) => failed(error),
        },
        Request::Spawn(spawn) => match children.spawn(&spawn) {
            Ok(pid) => Answer::Spawned { pid },
            Err(error) => failed(error),
        },
        Request::Signal { pid, signal } => match children.signal(pid, signal) {
            Ok(()) => Answer::Done,
            Err(error) => failed(error),
        },
        Request::Wait { pid } => match children.watch(pid) {
            Ok(mut status) => match status.wait_for(Option::is_some).await.map(|exit| *exit) {
                Ok(Some(exit)) => Answer::Exited(exit),
                _ => Answer::Failed { message: "the bed ends".to_owned() },
            },
            Err(error) => failed(error),
        },
        Request::Status { pid } => match children.watch(pid) {
            Ok(status) => status.borrow().map_or(Answer::Running, Answer::Exited),
            Err(error) => failed(error),
        },
        Request::Forward { .. } | Request::Detach | Request::Stop => {
            Answer::Failed { message: "that is the keeper's business".to_owned() }
        }
    };
    // A client that went away needs no answer.
    let _ = send(&mut stream, &answer).await;
}

async fn relay(mut stream: UnixStream, mut tcp: TcpStream) {
    let _ = tcp.set_nodelay(true);
    if send(&mut stream, &Answer::Connected).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut tcp).await;
    }
}

/// Relays what comes to `listener` for as long as whoever asked for it holds its connection.
async fn expose(mut stream: UnixStream, listener: TcpListener, to: PathBuf) {
    if send(&mut stream, &Answer::Done).await.is_err() {
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

/// A connection that nobody takes outside is closed: to the client it is as if the server had closed it.
async fn relay_out(mut tcp: TcpStream, to: PathBuf) {
    let _ = tcp.set_nodelay(true);
    if let Ok(mut outside) = UnixStream::connect(to).await {
        let _ = tokio::io::copy_bidirectional(&mut tcp, &mut outside).await;
    }
}

fn failed(error: io::Error) -> Answer {
    Answer::Failed { message: error.to_string() }
}
