//! Requests to init.

use std::{io, sync::Arc};

use tokio::net::{TcpStream, UnixStream};

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

fn failed(error: io::Error) -> Answer {
    Answer::Failed { message: error.to_string() }
}
