//! The listener: accepts connections until SIGTERM, then lets the open ones end, or ends at once.

use std::{convert::Infallible, sync::Arc};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    app::App,
    settings::{ServerSettings, Shutdown},
};

/// Serves until SIGTERM or SIGINT. Then it waits until the last request in flight is answered, unless it is to end at
/// once. The pod's grace period limits that time.
pub(crate) async fn serve(settings: ServerSettings) -> Result<(), String> {
    let listener = TcpListener::bind(&settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    // A handler is needed for an immediate end, too: process 1 of a container ignores signals without one.
    let hook = |kind| signal(kind).map_err(|error| format!("cannot watch for signals: {error}"));
    let (mut terminated, mut interrupted) = (hook(SignalKind::terminate())?, hook(SignalKind::interrupt())?);
    let app = Arc::new(App::new(&settings));
    let graceful = GracefulShutdown::new();
    println!("{} serves on {}", settings.version, settings.listen);
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let (app, open) = (app.clone(), app.connected());
                let service = service_fn(move |request: Request<Incoming>| {
                    let app = app.clone();
                    async move { Ok::<_, Infallible>(app.answer(request.uri().path(), request.uri().query()).await) }
                });
                let connection = graceful.watch(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                tokio::spawn(async move {
                    // An error on one connection does not affect the others.
                    drop(connection.await);
                    drop(open);
                });
            },
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    if settings.shutdown == Shutdown::Graceful {
        app.drain();
        drop(listener);
        graceful.shutdown().await;
    }
    Ok(())
}
