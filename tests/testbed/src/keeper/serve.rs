//! Requests to the keeper.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Notify,
};

use super::relay::forward;
use crate::{
    control::Control,
    protocol::{Answer, Request, receive, send},
};

/// What clients may tell the keeper about the bed's end.
#[derive(Default)]
pub(crate) struct Orders {
    /// The bed shall end.
    pub(crate) stop: Notify,
    /// The owner's end means nothing any more.
    pub(crate) detached: AtomicBool,
}

/// Serves `keeper.sock`.
pub(crate) async fn serve(listener: UnixListener, control: Control, orders: Arc<Orders>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, control.clone(), orders.clone()));
    }
}

async fn answer(mut stream: UnixStream, control: Control, orders: Arc<Orders>) {
    let Ok(request) = receive::<Request>(&mut stream).await else {
        return;
    };
    let mut stopping = false;
    let answer = match request {
        Request::Forward { to } => match forward(control, to).await {
            Ok(at) => Answer::Forwarded { at },
            Err(error) => Answer::Failed { message: crate::text_of(&error) },
        },
        Request::Detach => {
            orders.detached.store(true, Ordering::SeqCst);
            Answer::Done
        }
        Request::Stop => {
            stopping = true;
            Answer::Done
        }
        _ => Answer::Failed { message: "that is init's business".to_owned() },
    };
    let _ = send(&mut stream, &answer).await;
    if stopping {
        orders.stop.notify_one();
    }
}
