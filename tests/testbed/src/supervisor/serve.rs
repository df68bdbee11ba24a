//! The requests to the supervisor.

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
    control::ControlClient,
    protocol::{ControlRequest, ControlResponse, receive, send},
};

/// The orders of clients about the end of the cluster.
#[derive(Default)]
pub(crate) struct OwnerOrders {
    /// Ends the cluster.
    pub(crate) stop: Notify,
    /// True if the cluster stays when the owner ends.
    pub(crate) detached: AtomicBool,
}

/// Serves `supervisor.sock`.
pub(crate) async fn serve(listener: UnixListener, control: ControlClient, orders: Arc<OwnerOrders>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, control.clone(), orders.clone()));
    }
}

async fn answer(mut stream: UnixStream, control: ControlClient, orders: Arc<OwnerOrders>) {
    let Ok(request) = receive::<ControlRequest>(&mut stream).await else {
        return;
    };
    let mut stopping = false;
    let answer = match request {
        ControlRequest::Forward { to } => match forward(control, to).await {
            Ok(at) => ControlResponse::Forwarded { at },
            Err(error) => ControlResponse::Failed { message: crate::text_of(&error) },
        },
        ControlRequest::Detach => {
            orders.detached.store(true, Ordering::SeqCst);
            ControlResponse::Done
        }
        ControlRequest::Stop => {
            stopping = true;
            ControlResponse::Done
        }
        _ => ControlResponse::Failed { message: "that is init's business".to_owned() },
    };
    let _ = send(&mut stream, &answer).await;
    if stopping {
        orders.stop.notify_one();
    }
}
